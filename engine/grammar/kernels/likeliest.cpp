// The likeliest allowed token of each row of logits, in one pass over the numbers as the model gave them.
//
// Compiled on the user's machine by `fast_path/native.py`, without any header of PyTorch, and called through ctypes. Numbers are
// compared as whole numbers of their own width: the bits of a float, with its sign turned into that of a whole number, are in the
// order of the floats, in every format.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

constexpr int64_t WORD = 32;
constexpr int64_t BLOCK = 32 * WORD;
constexpr int64_t NOTHING = -1, NO_NUMBER = -2;
constexpr int64_t FEW = 1 << 18;  // columns of all rows below which no other thread is woken

template <typename Int>
struct Lanes {
  typedef Int Vec __attribute__((vector_size(64)));
  static constexpr int64_t COUNT = 64 / sizeof(Int);
  static constexpr Int SIZE = std::numeric_limits<Int>::max(), DENIED = std::numeric_limits<Int>::min();

  static inline Vec load(const Int* place) {
    Vec x;
    std::memcpy(&x, place, sizeof x);
    return x;
  }
  static inline Int most(Vec x) {
    Int result = x[0];
    for (int64_t i = 1; i < COUNT; ++i) result = std::max<Int>(result, x[i]);
    return result;
  }
  // All bits of a lane where the mask allows its column; `part` counts the vectors of a word.
  static inline Vec allowed(uint32_t word, int64_t part) {
    Vec bit, is_upper;
    for (int64_t i = 0; i < COUNT; ++i) {
      bit[i] = Int(1 << (i & 15));
      is_upper[i] = Int(i < 16 ? 0 : -1);
    }
    const Vec lower = (Vec){} + Int(word >> (16 * part)), upper = (Vec){} + Int(word >> 16);
    return ((is_upper ? upper : lower) & bit) != 0;
  }
};

// Whole numbers in the order of the floats; both zeros are 0. DENIED is below all of them.
template <typename Int>
inline Int key_of(Int bits) {
  const Int sign = bits < 0 ? Int(-1) : Int(0), size = Int(bits & Lanes<Int>::SIZE);
  return Int((size ^ sign) - sign);
}

inline uint32_t word_at(const int32_t* mask, int64_t words, int64_t index) {
  if (mask == nullptr) return 0xffffffffu;
  return index < words ? uint32_t(mask[index]) : 0u;
}

template <typename Int>
struct Best {
  Int key = Lanes<Int>::DENIED;  // of the likeliest allowed token
  Int largest = 0;               // of all magnitudes: beyond infinity there are only NaNs
  int64_t start = 0;             // the block in which the key stands first
};

template <typename Int>
void look(const Int* row, int64_t start, int64_t end, const int32_t* mask, int64_t words, Best<Int>& best) {
  using L = Lanes<Int>;
  typename L::Vec keys = (typename L::Vec){} + L::DENIED, largest = (typename L::Vec){};
  int64_t column = start;
  for (; column + WORD <= end; column += WORD) {
    const uint32_t word = word_at(mask, words, column / WORD);
    for (int64_t part = 0; part < WORD / L::COUNT; ++part) {
      const typename L::Vec bits = L::load(row + column + part * L::COUNT);
      const typename L::Vec size = bits & L::SIZE;
      largest = size > largest ? size : largest;
      if (word == 0u) continue;
      const typename L::Vec sign = bits >> int(8 * sizeof(Int) - 1);
      typename L::Vec key = (size ^ sign) - sign;
      if (word != 0xffffffffu) key = L::allowed(word, part) ? key : L::DENIED + (typename L::Vec){};
      keys = key > keys ? key : keys;
    }
  }
  Int key = L::most(keys);
  best.largest = std::max(best.largest, L::most(largest));
  for (; column < end; ++column) {
    best.largest = std::max<Int>(best.largest, Int(row[column] & L::SIZE));
    if ((word_at(mask, words, column / WORD) >> (column % WORD)) & 1u) key = std::max(key, key_of(row[column]));
  }
  if (key > best.key) {
    best.key = key;
    best.start = start;
  }
}

template <typename Int>
int64_t likeliest(const Int* row, int64_t vocab_size, const int32_t* mask, int64_t words, Int infinity, Int banned_size) {
  Best<Int> best;
  best.largest = banned_size;
  for (int64_t start = 0; start < vocab_size; start += BLOCK) look(row, start, std::min(vocab_size, start + BLOCK), mask, words, best);
  if (best.largest > infinity) return NO_NUMBER;
  if (best.key <= -infinity) return NOTHING;
  int64_t column = best.start;
  while (key_of(row[column]) != best.key || !((word_at(mask, words, column / WORD) >> (column % WORD)) & 1u)) ++column;
  return column;
}

template <typename Int>
void likeliest_of_rows(Int* logits, int64_t stride, int64_t vocab_size, const int64_t* rows, int64_t num_rows, const int32_t* bitmask,
                       int64_t words, const int64_t* mask_rows, const int64_t* banned, const int64_t* banned_ends, Int infinity,
                       int64_t* token_ids, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && num_rows > 1 && num_rows * vocab_size >= FEW)
  for (int64_t index = 0; index < num_rows; ++index) {
    Int* row = logits + rows[index] * stride;
    const int32_t* mask = mask_rows[index] < 0 ? nullptr : bitmask + mask_rows[index] * words;
    const int64_t first = index ? banned_ends[index - 1] : 0, end = banned_ends[index];
    // Banned tokens are taken out for the look and put back, the last first, since one may be banned twice.
    std::vector<Int> kept(size_t(end - first));
    Int banned_size = 0;
    for (int64_t i = first; i < end; ++i) {
      kept[size_t(i - first)] = row[banned[i]];
      banned_size = std::max<Int>(banned_size, Int(row[banned[i]] & Lanes<Int>::SIZE));
      row[banned[i]] = Int(infinity | Lanes<Int>::DENIED);
    }
    token_ids[index] = likeliest(row, vocab_size, mask, words, infinity, banned_size);
    for (int64_t i = end; i-- > first;) row[banned[i]] = kept[size_t(i - first)];
  }
}

}  // namespace

extern "C" {

// `infinity` is given as bits: 0x7f800000 in float32, 0x7f80 in bfloat16, 0x7c00 in float16. `mask_rows` is -1 where no mask rules.
void likeliest_32(int32_t* logits, int64_t stride, int64_t vocab_size, const int64_t* rows, int64_t num_rows, const int32_t* bitmask,
                  int64_t words, const int64_t* mask_rows, const int64_t* banned, const int64_t* banned_ends, int32_t infinity,
                  int64_t* token_ids, int threads) {
  likeliest_of_rows(logits, stride, vocab_size, rows, num_rows, bitmask, words, mask_rows, banned, banned_ends, infinity, token_ids,
                    threads);
}

void likeliest_16(int16_t* logits, int64_t stride, int64_t vocab_size, const int64_t* rows, int64_t num_rows, const int32_t* bitmask,
                  int64_t words, const int64_t* mask_rows, const int64_t* banned, const int64_t* banned_ends, int32_t infinity,
                  int64_t* token_ids, int threads) {
  likeliest_of_rows(logits, stride, vocab_size, rows, num_rows, bitmask, words, mask_rows, banned, banned_ends,
                    static_cast<int16_t>(infinity), token_ids, threads);
}

}  // extern "C"
