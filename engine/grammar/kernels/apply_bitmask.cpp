// Denies tokens in rows of logits: word by word, whole words at once where a grammar allows none or all of their 32 tokens.
//
// Compiled on the user's machine by `fast_path/native.py`, without any header of PyTorch, and called through ctypes.

#include <cstdint>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

template <typename T>
void apply(T* logits, int64_t stride, int64_t vocab_size, const int32_t* bitmask, int64_t words, const int64_t* rows,
           int64_t num_rows, T denied, int num_threads) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(num_threads) schedule(static) if (num_rows > 1 && num_threads > 1)
#endif
  for (int64_t index = 0; index < num_rows; ++index) {
    T* row = logits + rows[index] * stride;
    const int32_t* mask = bitmask + index * words;
    for (int64_t start = 0; start < vocab_size; start += 32) {
      const int64_t end = start + 32 < vocab_size ? start + 32 : vocab_size;
      const int64_t word_index = start / 32;
      const uint32_t word = word_index < words ? static_cast<uint32_t>(mask[word_index]) : 0u;
      if (word == 0u) {
        for (int64_t column = start; column < end; ++column) row[column] = denied;
      } else if (word != 0xffffffffu) {
        for (int64_t column = start; column < end; ++column) row[column] = (word >> (column - start)) & 1u ? row[column] : denied;
      }
    }
  }
}

}  // namespace

extern "C" {

// -inf is given as bits: 0xff800000 in float32, 0xff80 in bfloat16, 0xfc00 in float16.
void apply_32(uint32_t* logits, int64_t stride, int64_t vocab_size, const int32_t* bitmask, int64_t words, const int64_t* rows,
              int64_t num_rows, uint32_t denied, int num_threads) {
  apply(logits, stride, vocab_size, bitmask, words, rows, num_rows, denied, num_threads);
}

void apply_16(uint16_t* logits, int64_t stride, int64_t vocab_size, const int32_t* bitmask, int64_t words, const int64_t* rows,
              int64_t num_rows, uint32_t denied, int num_threads) {
  apply(logits, stride, vocab_size, bitmask, words, rows, num_rows, static_cast<uint16_t>(denied), num_threads);
}

}  // extern "C"
