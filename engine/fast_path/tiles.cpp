// Products of bfloat16 matrices over weights that lie in the order in which they are read.
//
// Compiled on the user's machine by `native.py` and called through ctypes, like `kernels.cpp`. There are two ways to multiply, by
// AMX tiles and by dot products of AVX-512; both read the same order, and neither is there on a machine without them.
//
// The order: the weights `(outputs, size)` are cut into columns of 16 outputs, each column into pairs of neighbouring inputs; a
// pair is 16 times two numbers, output after output, 64 bytes. What one thread multiplies is one run of memory, which is what
// counts with few rows, where a step is as fast as its weights are read. `size` is even for AVX-512 and a multiple of 32 for AMX;
// outputs are padded with zeros to a multiple of 32.
// https://www.intel.com/content/www/us/en/docs/intrinsics-guide/index.html (AMX-BF16, AVX512_BF16)

#include <algorithm>
#include <cstdint>
#include <cstring>
#if defined(__AMX_BF16__) && defined(__linux__)
#define THINKGATE_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

constexpr int64_t COLUMN = 16;
constexpr int64_t WIDTH = 2 * COLUMN;  // outputs that are computed at once
constexpr int64_t MAX_ROWS = 32;       // rows that are computed at once

struct Product {
  const uint16_t* x;
  const uint16_t* weight;
  const float* bias;  // or null
  uint16_t* out;
  int64_t rows, size, outputs;
};

struct Share {
  int64_t begin, end;
};

// What of `count` this thread does.
Share share_of(int64_t count) {
#ifdef _OPENMP
  const int64_t index = omp_get_thread_num(), threads = omp_get_num_threads();
#else
  const int64_t index = 0, threads = 1;
#endif
  return {count * index / threads, count * (index + 1) / threads};
}

#ifdef __AVX512BF16__

// Rounds 16 sums and writes those that are outputs.
inline void put(const Product& p, int64_t row, int64_t first, __m512 sums) {
  if (first >= p.outputs) return;
  const int64_t count = std::min(COLUMN, p.outputs - first);
  const __mmask16 there = __mmask16((1u << count) - 1u);
  if (p.bias != nullptr) sums = _mm512_add_ps(sums, _mm512_maskz_loadu_ps(there, p.bias + first));
  const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(sums);
  _mm256_mask_storeu_epi16(p.out + row * p.outputs + first, there, rounded);
}

inline int32_t pair_at(const uint16_t* place) {
  int32_t pair;
  std::memcpy(&pair, place, sizeof pair);
  return pair;
}

template <int64_t ROWS>
void dot_rows(const Product& p, int64_t row, int64_t first) {
  const uint16_t* left = p.weight + first * p.size;
  const uint16_t* right = left + COLUMN * p.size;
  __m512 sums[ROWS][2];
  for (int64_t m = 0; m < ROWS; ++m) sums[m][0] = sums[m][1] = _mm512_setzero_ps();
  for (int64_t k = 0; k < p.size; k += 2) {
    const __m512bh a = (__m512bh)_mm512_loadu_si512(left + k * COLUMN), b = (__m512bh)_mm512_loadu_si512(right + k * COLUMN);
    for (int64_t m = 0; m < ROWS; ++m) {
      const __m512bh pair = (__m512bh)_mm512_set1_epi32(pair_at(p.x + (row + m) * p.size + k));
      sums[m][0] = _mm512_dpbf16_ps(sums[m][0], a, pair);
      sums[m][1] = _mm512_dpbf16_ps(sums[m][1], b, pair);
    }
  }
  for (int64_t m = 0; m < ROWS; ++m) {
    put(p, row + m, first, sums[m][0]);
    put(p, row + m, first + COLUMN, sums[m][1]);
  }
}

constexpr int64_t MAX_DOT_ROWS = 12;  // 24 sums, two weights and a pair: what 32 registers hold

// Dispatches to the number of rows that is known only now.
template <int64_t ROWS>
void dot(const Product& p, int64_t row, int64_t count, int64_t first) {
  if (count == ROWS) return dot_rows<ROWS>(p, row, first);
  if constexpr (ROWS > 1) dot<ROWS - 1>(p, row, count, first);
}

#endif

#ifdef THINKGATE_AMX

struct __attribute__((packed)) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0 to 3 hold the sums of two by two tiles, 4 and 5 the rows, 6 and 7 the weights.
void shape_tiles(int64_t upper, int64_t lower) {
  TileShapes shapes;
  const int64_t rows[8] = {upper, upper, lower, lower, upper, lower, COLUMN, COLUMN};
  for (int i = 0; i < 8; ++i) {
    if (rows[i] == 0) continue;
    shapes.bytes[i] = 64;
    shapes.rows[i] = uint8_t(rows[i]);
  }
  _tile_loadconfig(&shapes);
}

template <bool HAS_LOWER>
void multiply_tiles(const Product& p, int64_t row, int64_t upper, int64_t lower, int64_t first) {
  const uint16_t* left = p.weight + first * p.size;
  const uint16_t* right = left + COLUMN * p.size;
  const uint16_t* x = p.x + row * p.size;
  const uint16_t* below = x + upper * p.size;
  const int64_t stride = p.size * int64_t(sizeof(uint16_t));
  _tile_zero(0);
  _tile_zero(1);
  if (HAS_LOWER) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < p.size; k += 32) {
    _tile_loadd(4, x + k, stride);
    _tile_loadd(6, left + k * COLUMN, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, right + k * COLUMN, 64);
    _tile_dpbf16ps(1, 4, 7);
    if (HAS_LOWER) {
      _tile_loadd(5, below + k, stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  alignas(64) float sums[4][COLUMN * COLUMN];
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  if (HAS_LOWER) {
    _tile_stored(2, sums[2], 64);
    _tile_stored(3, sums[3], 64);
  }
  for (int64_t m = 0; m < upper + lower; ++m) {
    const int64_t tile = m < upper ? 0 : 2, line = m < upper ? m : m - upper;
    put(p, row + m, first, _mm512_load_ps(sums[tile] + line * COLUMN));
    put(p, row + m, first + COLUMN, _mm512_load_ps(sums[tile + 1] + line * COLUMN));
  }
}

#endif

}  // namespace

// Whether this process may multiply by tiles: the system has to be asked once, it makes room for the registers.
// https://docs.kernel.org/arch/x86/xstate.html
extern "C" int may_use_amx() {
#ifdef THINKGATE_AMX
  constexpr long REQUEST = 0x1023, TILE_DATA = 18;
  return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
  return 0;
#endif
}

extern "C" int may_use_avx512() {
#ifdef __AVX512BF16__
  return 1;
#else
  return 0;
#endif
}

// `packed` has room for `size` times the outputs, padded to a multiple of 32, and is zero.
extern "C" void pack_weight(const uint16_t* weight, uint16_t* packed, int64_t outputs, int64_t size) {
#pragma omp parallel for
  for (int64_t n = 0; n < outputs; ++n) {
    uint16_t* column = packed + n / COLUMN * COLUMN * size + n % COLUMN * 2;
    for (int64_t k = 0; k < size; k += 2) std::memcpy(column + k * COLUMN, weight + n * size + k, 2 * sizeof(uint16_t));
  }
}

extern "C" void multiply_amx(const uint16_t* x, const uint16_t* weight, const float* bias, uint16_t* out, int64_t rows, int64_t size,
                             int64_t outputs, int threads) {
#ifdef THINKGATE_AMX
  const Product p{x, weight, bias, out, rows, size, outputs};
  const int64_t num_columns = (outputs + WIDTH - 1) / WIDTH;
  // Weights that stay in a core's cache while all rows pass by.
  const int64_t group = std::max<int64_t>(1, (1 << 20) / (WIDTH * size * int64_t(sizeof(uint16_t))));
#pragma omp parallel num_threads(threads)
  {
    const Share share = share_of(num_columns);
    int64_t shaped = 0;
    for (int64_t begin = share.begin; begin < share.end; begin += group) {
      const int64_t end = std::min(share.end, begin + group);
      for (int64_t row = 0; row < rows; row += MAX_ROWS) {
        const int64_t count = std::min(MAX_ROWS, rows - row), upper = std::min(count, COLUMN), lower = count - upper;
        if (shaped != count) shape_tiles(upper, lower);
        shaped = count;
        for (int64_t column = begin; column < end; ++column) {
          if (lower > 0) {
            multiply_tiles<true>(p, row, upper, lower, column * WIDTH);
          } else {
            multiply_tiles<false>(p, row, upper, 0, column * WIDTH);
          }
        }
      }
    }
    _tile_release();
  }
#endif
}

extern "C" void multiply_avx512(const uint16_t* x, const uint16_t* weight, const float* bias, uint16_t* out, int64_t rows,
                                int64_t size, int64_t outputs, int threads) {
#ifdef __AVX512BF16__
  const Product p{x, weight, bias, out, rows, size, outputs};
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t first = 0; first < outputs; first += WIDTH) {
    for (int64_t row = 0; row < rows; row += MAX_DOT_ROWS) {
      dot<MAX_DOT_ROWS>(p, row, std::min(MAX_DOT_ROWS, rows - row), first);
    }
  }
#endif
}
