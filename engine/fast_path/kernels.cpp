// Small kernels of one decode step on the CPU: what stands between the matrix products.
//
// Compiled on the user's machine by `native.py`, without any header of PyTorch, and called through ctypes. Every function has a
// twin in `torch_ops.py`, which is the reference. Numbers are read as float32 or bfloat16 and computed in float32.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>
#ifdef __AVX512F__
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

struct bf16 {
  uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
  const uint32_t bits = uint32_t(x.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

inline void put(float& place, float x) { place = x; }
inline void put(bf16& place, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  // To the nearest, ties to even; a NaN must not be carried over into infinity.
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  place.bits = uint16_t(x != x ? 0x7fc0u : rounded);
}

// Sixteen numbers at a time, whatever the machine's own registers hold.
constexpr int64_t LANES = 16;
constexpr int64_t MANY = 32768;  // numbers from which on a second thread gains more than it takes to wake it
typedef float floats __attribute__((vector_size(64)));
typedef int32_t ints __attribute__((vector_size(64)));
typedef uint32_t words __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(32)));

inline floats load(const float* place) {
  floats x;
  std::memcpy(&x, place, sizeof x);
  return x;
}
inline floats load(const bf16* place) {
  halves x;
  std::memcpy(&x, place, sizeof x);
  return (floats)(__builtin_convertvector(x, words) << 16);
}
inline void store(float* place, floats x) { std::memcpy(place, &x, sizeof x); }
inline void store(bf16* place, floats x) {
  const words bits = (words)x;
  words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  rounded = (x != x) ? (rounded & 0u) + 0x7fc0u : rounded;
  const halves result = __builtin_convertvector(rounded, halves);
  std::memcpy(place, &result, sizeof result);
}
inline float sum_of(floats x) {
  typedef float eight __attribute__((vector_size(32)));
  typedef float four __attribute__((vector_size(16)));
  const eight a = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  four b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
  b += __builtin_shufflevector(b, b, 2, 3, 0, 1);
  return b[0] + b[1];
}

// `a * b + c`, rounded once where the machine can do that: never left to the compiler, which would do it here and not there, so that
// the numbers of a row would depend on its batch.
inline floats multiply_add(floats a, floats b, floats c) {
#if defined(__AVX512F__)
  return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FP_FAST_FMAF)
  for (int64_t i = 0; i < LANES; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#else
  return a * b + c;
#endif
}

// The four sums of four vectors, added in the order of `sum_of`.
inline void sums_of(floats a, floats b, floats c, floats d, float* place) {
  const floats ab = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                    __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  const floats cd = __builtin_shufflevector(c, d, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                    __builtin_shufflevector(c, d, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  floats sums = __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                __builtin_shufflevector(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  sums += __builtin_shufflevector(sums, sums, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  sums += __builtin_shufflevector(sums, sums, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  typedef float four __attribute__((vector_size(16)));
  const four result = __builtin_shufflevector(sums, sums, 0, 4, 8, 12);
  std::memcpy(place, &result, sizeof result);
}

// exp within 2 units in the last place for -87 <= x <= 88; what is below or above is taken as these.
inline floats fast_exp(floats x) {
  x = x < -87.0f ? x * 0.0f - 87.0f : x;
  x = x > 88.0f ? x * 0.0f + 88.0f : x;
  const floats n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  const floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const ints bits = (__builtin_convertvector(n, ints) + 127) << 23;
  return p * (floats)bits;
}

template <typename T>
void add_norm(T* x, const T* delta, const float* weight, T* out, int64_t rows, int64_t size, float eps, int threads) {
  const int64_t whole = size - size % LANES;
#pragma omp parallel for num_threads(threads) if (rows * size >= MANY)
  for (int64_t row = 0; row < rows; ++row) {
    T* line = x + row * size;
    T* result = out + row * size;
    if (delta != nullptr) {
      const T* added = delta + row * size;
      for (int64_t i = 0; i < whole; i += LANES) store(line + i, load(line + i) + load(added + i));
      for (int64_t i = whole; i < size; ++i) put(line[i], to_float(line[i]) + to_float(added[i]));
    }
    floats squares = {};
    for (int64_t i = 0; i < whole; i += LANES) squares += load(line + i) * load(line + i);
    float sum = sum_of(squares);
    for (int64_t i = whole; i < size; ++i) sum += to_float(line[i]) * to_float(line[i]);
    const float factor = 1.0f / std::sqrt(sum / float(size) + eps);
    for (int64_t i = 0; i < whole; i += LANES) store(result + i, load(line + i) * factor * load(weight + i));
    for (int64_t i = whole; i < size; ++i) put(result[i], to_float(line[i]) * factor * weight[i]);
  }
}

template <typename T>
void gate(const T* gate_up, T* out, int64_t rows, int64_t size, int threads) {
  const int64_t whole = size - size % LANES;
#pragma omp parallel for num_threads(threads) if (rows * size >= MANY)
  for (int64_t row = 0; row < rows; ++row) {
    const T* gates = gate_up + 2 * row * size;
    const T* ups = gates + size;
    T* result = out + row * size;
    for (int64_t i = 0; i < whole; i += LANES) {
      const floats g = load(gates + i);
      store(result + i, g / (1.0f + fast_exp(-g)) * load(ups + i));
    }
    for (int64_t i = whole; i < size; ++i) {
      const float g = to_float(gates[i]);
      put(result[i], g / (1.0f + std::exp(-g)) * to_float(ups[i]));
    }
  }
}

template <typename T>
void norm_head(T* head, const float* weight, int64_t dim, float eps) {
  float sum = 0.0f;
  for (int64_t i = 0; i < dim; ++i) sum += to_float(head[i]) * to_float(head[i]);
  const float factor = 1.0f / std::sqrt(sum / float(dim) + eps);
  for (int64_t i = 0; i < dim; ++i) put(head[i], to_float(head[i]) * factor * weight[i]);
}

template <typename T>
void rotate_head(T* head, const float* cos, const float* sin, int64_t dim) {
  const int64_t half = dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float a = to_float(head[i]), b = to_float(head[i + half]);
    put(head[i], a * cos[i] - b * sin[i]);
    put(head[i + half], b * cos[i] + a * sin[i]);
  }
}

template <typename T>
void rotate_and_write(T* qkv, const float* cos, const float* sin, const int64_t* positions, const int64_t* slots, T* keys,
                      T* values, const float* query_norm, const float* key_norm, float eps, int64_t rows, int64_t heads,
                      int64_t kv_heads, int64_t dim, int threads) {
  const int64_t width = (heads + 2 * kv_heads) * dim;
#pragma omp parallel for num_threads(threads) if (rows * width >= MANY)
  for (int64_t row = 0; row < rows; ++row) {
    T* line = qkv + row * width;
    const float* row_cos = cos + positions[row] * (dim / 2);
    const float* row_sin = sin + positions[row] * (dim / 2);
    for (int64_t h = 0; h < heads + kv_heads; ++h) {
      const float* norm = h < heads ? query_norm : key_norm;
      if (norm != nullptr) norm_head(line + h * dim, norm, dim, eps);
      rotate_head(line + h * dim, row_cos, row_sin, dim);
    }
    const size_t bytes = size_t(kv_heads * dim) * sizeof(T);
    std::memcpy(keys + slots[row] * kv_heads * dim, line + heads * dim, bytes);
    std::memcpy(values + slots[row] * kv_heads * dim, line + (heads + kv_heads) * dim, bytes);
  }
}

struct Shape {
  int64_t width, heads, kv_heads, dim, block_size, max_blocks;
  float scale;
};

// A sequence's keys or values of one head, wherever its blocks lie.
template <typename T>
struct Pages {
  const T* pages;
  const int32_t* table;
  int64_t block_size, stride, head;

  // Calls `visit(j, place, count)` for the runs of neighbours among the positions from `start` to `stop`.
  template <typename Visit>
  inline void walk(int64_t start, int64_t stop, Visit visit) const {
    for (int64_t j = start; j < stop;) {
      const int64_t offset = j % block_size;
      const int64_t count = std::min(stop - j, block_size - offset);
      visit(j, pages + (table[j / block_size] * block_size + offset) * stride + head, count);
      j += count;
    }
  }
};

// Calls `visit` for parts of `count` query heads: as many at a time as registers hold what is summed up for them.
template <int64_t DIM, typename Visit>
void by_group(int64_t count, Visit visit) {
  constexpr int64_t MOST = 256 / DIM;
  int64_t g = 0;
  for (; g + MOST <= count; g += MOST) visit(g, std::integral_constant<int64_t, MOST>());
  if (MOST > 3 && count - g == 3) return visit(g, std::integral_constant<int64_t, 3>());
  for (; g + 2 <= count; g += 2) visit(g, std::integral_constant<int64_t, 2>());
  if (g < count) visit(g, std::integral_constant<int64_t, 1>());
}

// Dot products of `GROUP` queries with the keys from `start` to `stop`: a key is widened once for all of them, and four keys are
// added up together, since that takes longer than to multiply them.
template <typename T, int64_t DIM, int64_t GROUP>
void score_group(const float* queries, const Pages<T>& keys, int64_t start, int64_t stop, float* scores) {
  const int64_t length = stop - start, stride = keys.stride;
  keys.walk(start, stop, [=](int64_t j, const T* key, int64_t run) {
    float* place = scores + j - start;
    for (; run >= 4; run -= 4, key += 4 * stride, place += 4) {
      floats dots[GROUP][4] = {};
      for (int64_t d = 0; d < DIM; d += LANES) {
        floats parts[4];
        for (int64_t i = 0; i < 4; ++i) parts[i] = load(key + i * stride + d);
        for (int64_t g = 0; g < GROUP; ++g) {
          const floats query = load(queries + g * DIM + d);
          for (int64_t i = 0; i < 4; ++i) dots[g][i] = multiply_add(query, parts[i], dots[g][i]);
        }
      }
      for (int64_t g = 0; g < GROUP; ++g) sums_of(dots[g][0], dots[g][1], dots[g][2], dots[g][3], place + g * length);
    }
    for (; run > 0; --run, key += stride, ++place) {
      for (int64_t g = 0; g < GROUP; ++g) {
        floats dot = {};
        for (int64_t d = 0; d < DIM; d += LANES) dot = multiply_add(load(queries + g * DIM + d), load(key + d), dot);
        place[g * length] = sum_of(dot);
      }
    }
  });
}

// `scores[g * length + j]`: dot products of `count` queries with the keys from `start` to `stop`.
template <typename T, int64_t DIM>
void score(const float* queries, const Pages<T>& keys, int64_t start, int64_t stop, int64_t count, int64_t dim, float* scores) {
  const int64_t length = stop - start;
  if constexpr (DIM > 0) {
    by_group<DIM>(count, [&](int64_t g, auto size) {
      score_group<T, DIM, size()>(queries + g * DIM, keys, start, stop, scores + g * length);
    });
  } else {
    keys.walk(start, stop, [=](int64_t j, const T* key, int64_t run) {
      for (; run > 0; --run, ++j, key += keys.stride) {
        for (int64_t g = 0; g < count; ++g) {
          float dot = 0.0f;
          for (int64_t d = 0; d < dim; ++d) dot += queries[g * dim + d] * to_float(key[d]);
          scores[g * length + j - start] = dot;
        }
      }
    });
  }
}

// Turns scores into weights that sum to 1.
inline void soften(float* score, int64_t length) {
  const int64_t whole = length - length % LANES;
  floats most = load(score);  // what lies behind a short row is scratch of this thread, and not looked at
  for (int64_t j = LANES; j < whole; j += LANES) most = load(score + j) > most ? load(score + j) : most;
  float largest = score[0];
  for (int64_t i = 0; i < LANES && whole > 0; ++i) largest = most[i] > largest ? most[i] : largest;
  for (int64_t j = whole; j < length; ++j) largest = score[j] > largest ? score[j] : largest;
  floats sums = {};
  for (int64_t j = 0; j < whole; j += LANES) {
    const floats weight = fast_exp(load(score + j) - largest);
    store(score + j, weight);
    sums += weight;
  }
  float total = sum_of(sums);
  for (int64_t j = whole; j < length; ++j) total += score[j] = std::exp(score[j] - largest);
  const float factor = 1.0f / total;
  for (int64_t j = 0; j < length; ++j) score[j] *= factor;
}

// Values of `GROUP` query heads, weighed: a value is widened once for all of them.
template <typename T, int64_t DIM, int64_t GROUP>
void mix_group(const float* weights, const Pages<T>& values, int64_t start, int64_t stop, T* out) {
  const int64_t length = stop - start;
  floats sums[GROUP][DIM / LANES] = {};
  values.walk(start, stop, [&](int64_t j, const T* value, int64_t run) {
    for (const float* weight = weights + j - start; run > 0; --run, ++weight, value += values.stride) {
      for (int64_t d = 0; d < DIM / LANES; ++d) {
        const floats part = load(value + d * LANES);
        for (int64_t g = 0; g < GROUP; ++g) sums[g][d] = multiply_add(weight[g * length] + (floats){}, part, sums[g][d]);
      }
    }
  });
  for (int64_t g = 0; g < GROUP; ++g)
    for (int64_t d = 0; d < DIM / LANES; ++d) store(out + g * DIM + d * LANES, sums[g][d]);
}

template <typename T, int64_t DIM>
void mix(const float* weights, const Pages<T>& values, int64_t start, int64_t stop, int64_t count, int64_t dim, T* out) {
  const int64_t length = stop - start;
  if constexpr (DIM > 0) {
    by_group<DIM>(count, [&](int64_t g, auto size) {
      mix_group<T, DIM, size()>(weights + g * length, values, start, stop, out + g * DIM);
    });
  } else {
    for (int64_t i = 0; i < count * dim; ++i) {
      const float* weight = weights + i / dim * length - start;
      float sum = 0.0f;
      values.walk(start, stop, [&](int64_t j, const T* value, int64_t run) {
        for (; run > 0; --run, ++j, value += values.stride) sum += weight[j] * to_float(value[i % dim]);
      });
      put(out[i], sum);
    }
  }
}

// One query token against the keys of one key head, for `count` query heads from `first_head` on. `DIM` 0 means any.
template <typename T, int64_t DIM>
void attend_one(const T* query, const T* keys, const T* values, const int32_t* table, int64_t start, int64_t stop,
                int64_t first_head, int64_t count, const Shape& s, T* out, std::vector<float>& scratch) {
  const int64_t dim = DIM ? DIM : s.dim;
  const int64_t length = stop - start;
  const int64_t stride = s.kv_heads * dim, head = first_head / (s.heads / s.kv_heads) * dim;
  scratch.resize(size_t(count * (length + dim) + LANES));
  float* scores = scratch.data();
  float* queries = scores + count * length;
  for (int64_t i = 0; i < count * dim; ++i) queries[i] = to_float(query[first_head * dim + i]) * s.scale;
  score<T, DIM>(queries, Pages<T>{keys, table, s.block_size, stride, head}, start, stop, count, dim, scores);
  for (int64_t g = 0; g < count; ++g) soften(scores + g * length, length);
  mix<T, DIM>(scores, Pages<T>{values, table, s.block_size, stride, head}, start, stop, count, dim, out + first_head * dim);
}

template <typename T>
void attend(const T* qkv, const T* keys, const T* values, const int32_t* tables, const int32_t* rows, const int32_t* sequences,
            const int32_t* lengths, int64_t num_queries, int64_t window, const Shape& s, T* out, int threads) {
  const int64_t group = s.heads / s.kv_heads;
  // Few queries are spread over the cores by head, many by key head, which reads the keys once for all its query heads.
  const int64_t count = num_queries * s.kv_heads >= threads ? group : 1;
  const int64_t parts = s.heads / count;
#pragma omp parallel num_threads(threads)
  {
    std::vector<float> scratch;
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < num_queries * parts; ++task) {
      const int64_t index = task / parts, first_head = task % parts * count;
      const int64_t stop = lengths[index], start = window > 0 ? std::max<int64_t>(0, stop - window) : 0;
      const T* query = qkv + rows[index] * s.width;
      const int32_t* table = tables + sequences[index] * s.max_blocks;
      T* result = out + rows[index] * s.heads * s.dim;
      if (s.dim == 64)
        attend_one<T, 64>(query, keys, values, table, start, stop, first_head, count, s, result, scratch);
      else if (s.dim == 128)
        attend_one<T, 128>(query, keys, values, table, start, stop, first_head, count, s, result, scratch);
      else
        attend_one<T, 0>(query, keys, values, table, start, stop, first_head, count, s, result, scratch);
    }
  }
}

// `out = x @ weight.T + bias` for `ROWS` rows: every weight is read once, and all rows are multiplied while it is at hand.
template <int64_t ROWS>
void multiply(const float* x, const float* weight, const float* bias, float* out, int64_t size, int64_t outputs, int threads) {
  const int64_t whole = size - size % LANES;
#pragma omp parallel for num_threads(threads)
  for (int64_t n = 0; n < outputs; ++n) {
    const float* line = weight + n * size;
    floats sums[ROWS] = {};
    for (int64_t k = 0; k < whole; k += LANES) {
      const floats w = load(line + k);
      for (int64_t m = 0; m < ROWS; ++m) sums[m] += w * load(x + m * size + k);
    }
    for (int64_t m = 0; m < ROWS; ++m) {
      float sum = sum_of(sums[m]) + (bias != nullptr ? bias[n] : 0.0f);
      for (int64_t k = whole; k < size; ++k) sum += line[k] * x[m * size + k];
      out[m * outputs + n] = sum;
    }
  }
}

constexpr int64_t MAX_ROWS = 13;

// Dispatches to the number of rows that is known only now.
template <int64_t ROWS>
void multiply_rows(int64_t rows, const float* x, const float* weight, const float* bias, float* out, int64_t size,
                   int64_t outputs, int threads) {
  if (rows == ROWS) return multiply<ROWS>(x, weight, bias, out, size, outputs, threads);
  if constexpr (ROWS > 1) multiply_rows<ROWS - 1>(rows, x, weight, bias, out, size, outputs, threads);
}

}  // namespace

extern "C" void multiply_float32(const float* x, const float* weight, const float* bias, float* out, int64_t rows, int64_t size,
                                 int64_t outputs, int threads) {
  multiply_rows<MAX_ROWS>(rows, x, weight, bias, out, size, outputs, threads);
}

#define THINKGATE_EXPORT(SUFFIX, T)                                                                                            \
  extern "C" void add_norm_##SUFFIX(void* x, const void* delta, const float* weight, void* out, int64_t rows, int64_t size,    \
                                    float eps, int threads) {                                                                  \
    add_norm((T*)x, (const T*)delta, weight, (T*)out, rows, size, eps, threads);                                               \
  }                                                                                                                            \
  extern "C" void gate_##SUFFIX(const void* gate_up, void* out, int64_t rows, int64_t size, int threads) {                     \
    gate((const T*)gate_up, (T*)out, rows, size, threads);                                                                     \
  }                                                                                                                            \
  extern "C" void rotate_and_write_##SUFFIX(void* qkv, const float* cos, const float* sin, const int64_t* positions,           \
                                            const int64_t* slots, void* keys, void* values, const float* query_norm,           \
                                            const float* key_norm, float eps, int64_t rows, int64_t heads, int64_t kv_heads,   \
                                            int64_t dim, int threads) {                                                        \
    rotate_and_write((T*)qkv, cos, sin, positions, slots, (T*)keys, (T*)values, query_norm, key_norm, eps, rows, heads,        \
                     kv_heads, dim, threads);                                                                                  \
  }                                                                                                                            \
  extern "C" void attend_##SUFFIX(const void* qkv, const void* keys, const void* values, const int32_t* tables,                \
                                  const int32_t* rows, const int32_t* sequences, const int32_t* lengths, int64_t num_queries,  \
                                  int64_t window, int64_t width, int64_t heads, int64_t kv_heads, int64_t dim,                 \
                                  int64_t block_size, int64_t max_blocks, float scale, void* out, int threads) {               \
    const Shape shape{width, heads, kv_heads, dim, block_size, max_blocks, scale};                                             \
    attend((const T*)qkv, (const T*)keys, (const T*)values, tables, rows, sequences, lengths, num_queries, window, shape,      \
           (T*)out, threads);                                                                                                  \
  }

THINKGATE_EXPORT(float32, float)
THINKGATE_EXPORT(bfloat16, bf16)

namespace {

using Multiply = void (*)(const void* x, const void* weight, const float* bias, void* out, int64_t rows, int64_t size,
                          int64_t outputs, int threads);

struct Weight {
  const void* weight;
  const float* bias;
  int64_t size, outputs;
};

struct LayerPlan {
  Weight qkv, output, gate_up, down;
  const float *input_norm, *query_norm, *key_norm, *mlp_norm;
  void *keys, *values;
  int64_t window;
};

struct StepPlan {
  Multiply multiply;
  const float *cos, *sin;
  const int64_t *positions, *slots;
  const int32_t *tables, *rows, *sequences, *lengths;
  int64_t num_rows, num_queries, hidden_size, heads, kv_heads, dim, block_size, max_blocks;
  float eps, scale;
  int threads;
};

}  // namespace

// All layers of a step of short sequences in one call: some two hundred calls from Python take as long as a third of the products.
// `x` becomes what goes into the last norm, together with `delta`; `scratch` has room for one layer's results.
extern "C" void run_layers_bfloat16(const LayerPlan* layers, int64_t num_layers, const StepPlan* step, void* x, void* delta,
                                    void* scratch) {
  const StepPlan& s = *step;
  const int64_t n = s.num_rows;
  const auto multiply = [&](const void* in, const Weight& w, void* out) {
    s.multiply(in, w.weight, w.bias, out, n, w.size, w.outputs, s.threads);
  };
  for (int64_t i = 0; i < num_layers; ++i) {
    const LayerPlan& layer = layers[i];
    bf16* const normed = (bf16*)scratch;
    bf16* const qkv = normed + n * s.hidden_size;
    bf16* const attended = qkv + n * layer.qkv.outputs;
    add_norm((bf16*)x, i == 0 ? nullptr : (const bf16*)delta, layer.input_norm, normed, n, s.hidden_size, s.eps, s.threads);
    multiply(normed, layer.qkv, qkv);
    rotate_and_write(qkv, s.cos, s.sin, s.positions, s.slots, (bf16*)layer.keys, (bf16*)layer.values, layer.query_norm,
                     layer.key_norm, s.eps, n, s.heads, s.kv_heads, s.dim, s.threads);
    const Shape shape{layer.qkv.outputs, s.heads, s.kv_heads, s.dim, s.block_size, s.max_blocks, s.scale};
    attend(qkv, (const bf16*)layer.keys, (const bf16*)layer.values, s.tables, s.rows, s.sequences, s.lengths, s.num_queries,
           layer.window, shape, attended, s.threads);
    multiply(attended, layer.output, delta);
    add_norm((bf16*)x, (const bf16*)delta, layer.mlp_norm, normed, n, s.hidden_size, s.eps, s.threads);
    bf16* const gate_up = qkv;
    bf16* const gated = gate_up + n * layer.gate_up.outputs;
    multiply(normed, layer.gate_up, gate_up);
    gate(gate_up, gated, n, layer.down.size, s.threads);
    multiply(gated, layer.down, delta);
  }
}
