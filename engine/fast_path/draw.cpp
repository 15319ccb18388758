// Draws tokens of rows of logits by inverse CDF, with or without filters, masks and bans in it; the twin of `sampler.py`'s PyTorch
// operations.
//
// Compiled on the user's machine by `native.py`, without any header of PyTorch, and called through ctypes. A row is widened to
// float32 once, what is denied becoming -inf, with the largest of each block beside it. Weights of float32 logits are computed in
// float64; those of bfloat16 logits, which are known to 1 in 256, in float32. Sums are taken in blocks, so the last bits of a sum
// differ from PyTorch's; nothing depends on the batch or on threads.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

constexpr int64_t LANES = 16, WORD = 32, BLOCK = 2 * WORD;
constexpr int64_t NOTHING = -1, NO_NUMBER = -2;
constexpr float INF = std::numeric_limits<float>::infinity();
typedef float floats __attribute__((vector_size(64)));
typedef int32_t ints __attribute__((vector_size(64)));
typedef uint32_t words __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(32)));
typedef double doubles __attribute__((vector_size(64)));
typedef int64_t longs __attribute__((vector_size(64)));
typedef float half_floats __attribute__((vector_size(32)));

struct bf16 {
  uint16_t bits;
};

// Below this exponent a token weighs less than the last bit of all of them together, however many there are.
constexpr double FAINT = -60.0;

// exp for FAINT <= x <= 0 within two units in the last place; 0 below.
inline doubles exp_of(doubles x) {
  const longs is_faint = x < FAINT;
  x = is_faint ? x * 0.0 + FAINT : x;
  x = x != x ? (doubles){} + FAINT : x;  // -inf times 0
  constexpr double MAGIC = 6755399441055744.0;
  const doubles shifted = x * 1.4426950408889634 + MAGIC;
  const doubles n = shifted - MAGIC;
  const doubles r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  doubles p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const longs exponent = ((longs)shifted - (longs)((doubles){} + MAGIC) + 1023) << 52;
  const doubles result = p * (doubles)exponent;
  return is_faint ? (doubles){} : result;
}

inline floats exp_of(floats x) {
  const ints is_faint = x < float(FAINT);
  x = is_faint ? (floats){} + float(FAINT) : x;
  const floats n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  const floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const floats result = p * (floats)((__builtin_convertvector(n, ints) + 127) << 23);
  return is_faint ? (floats){} : result;
}

inline float at(const float* place) { return *place; }
inline float at(const bf16* place) {
  const uint32_t bits = uint32_t(place->bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
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
inline float most_of(floats x) {
  float result = x[0];
  for (int64_t i = 1; i < LANES; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

struct Filter {
  int64_t top_k;  // 0 is none
  double top_p, min_p;
};

// A row in float32, and room for what is found out about it; one for each thread, used again for every row.
struct Scratch {
  std::vector<float> logits, largest, order;  // of all columns, padded to whole blocks with -inf; of each block; these in order
  std::vector<double> sums, weights;
  std::vector<int64_t> ids;
};

// Widens a row into the scratch; false if one of its logits, allowed or not, is no number.
template <typename T>
bool widen(const T* row, int64_t size, const int32_t* mask, int64_t num_words, Scratch& s) {
  const int64_t num_blocks = (size + BLOCK - 1) / BLOCK;
  s.logits.resize(size_t(num_blocks * BLOCK));
  s.largest.resize(size_t(num_blocks));
  ints bit, no_number = {};
  for (int64_t i = 0; i < LANES; ++i) bit[i] = int32_t(1u << i);
  for (int64_t block = 0; block < num_blocks; ++block) {
    floats most = (floats){} - INF;
    for (int64_t start = block * BLOCK; start < (block + 1) * BLOCK; start += LANES) {
      floats x;
      if (start + LANES <= size) {
        x = load(row + start);
      } else {
        for (int64_t i = 0; i < LANES; ++i) x[i] = start + i < size ? at(row + start + i) : -INF;
      }
      no_number |= x != x;
      if (mask != nullptr) {
        const int64_t index = start / WORD;
        const uint32_t word = index < num_words ? uint32_t(mask[index]) >> (start % WORD) : 0u;
        x = (((ints){} + int32_t(word)) & bit) != 0 ? x : (floats){} - INF;
      }
      std::memcpy(s.logits.data() + start, &x, sizeof x);
      most = x > most ? x : most;
    }
    s.largest[size_t(block)] = most_of(most);
  }
  for (int64_t i = 0; i < LANES; ++i)
    if (no_number[i]) return false;
  return true;
}

void ban(int64_t token_id, Scratch& s) {
  const int64_t block = token_id / BLOCK;
  s.logits[size_t(token_id)] = -INF;
  float most = -INF;
  for (int64_t i = block * BLOCK; i < (block + 1) * BLOCK; ++i) most = std::max(most, s.logits[size_t(i)]);
  s.largest[size_t(block)] = most;
}

// The weights of a row: `Lane` is doubles or floats. The largest is taken off first: divided by a tiny temperature it would be
// infinite.
template <typename Lane>
struct Weights {
  static constexpr int64_t COUNT = sizeof(Lane) / sizeof(Lane{}[0]);
  const Scratch& s;
  float largest;
  double temperature;

  inline doubles from(int64_t start, doubles) const {
    half_floats x;
    std::memcpy(&x, s.logits.data() + start, sizeof x);
    return exp_of(__builtin_convertvector(x - largest, doubles) / temperature);
  }
  inline floats from(int64_t start, floats) const {
    const float divisor = float(std::min(std::max(temperature, 1e-30), 1e30));
    return exp_of((load(s.logits.data() + start) - largest) / divisor);
  }
  inline Lane from(int64_t start) const { return from(start, Lane{}); }

  // Whether all of a block is too faint to weigh anything.
  bool is_faint(int64_t block) const { return double(s.largest[size_t(block)] - largest) / temperature < FAINT; }

  double block(int64_t index) const {
    if (is_faint(index)) return 0.0;
    Lane sums = {};
    for (int64_t i = 0; i < BLOCK; i += COUNT) sums += from(index * BLOCK + i);
    double sum = 0.0;
    for (int64_t i = 0; i < COUNT; ++i) sum += double(sums[i]);
    return sum;
  }
};

template <typename Lane>
int64_t draw_whole(const Weights<Lane>& weights, double uniform, Scratch& s) {
  const int64_t num_blocks = int64_t(s.largest.size());
  s.sums.resize(size_t(num_blocks));
  double total = 0.0;
  for (int64_t i = 0; i < num_blocks; ++i) total += s.sums[size_t(i)] = weights.block(i);
  const double wanted = uniform * total;
  double before = 0.0;
  int64_t block = 0, chosen = 0;
  // Rounding can put the draw on the sum itself; the last that can be drawn takes it.
  for (int64_t i = 0; i < num_blocks; ++i) {
    if (s.sums[size_t(i)] <= 0.0) continue;
    if (i > block) {
      const double sum = before + s.sums[size_t(block)];
      if (sum > wanted) break;
      before = sum;
    }
    block = i;
  }
  double sum = before;
  for (int64_t start = block * BLOCK; start < (block + 1) * BLOCK; start += Weights<Lane>::COUNT) {
    const Lane own = weights.from(start);
    for (int64_t i = 0; i < Weights<Lane>::COUNT; ++i) {
      if (own[i] <= 0) continue;
      sum += double(own[i]);
      chosen = start + i;
      if (sum > wanted) return chosen;
    }
  }
  return chosen;
}

template <typename Lane>
int64_t draw_filtered(const Weights<Lane>& row, const Filter& filter, double uniform, Scratch& s) {
  const int64_t num_blocks = int64_t(s.largest.size());
  double total = 0.0;
  if (!filter.top_k)
    for (int64_t i = 0; i < num_blocks; ++i) total += row.block(i);
  const float* logits = s.logits.data();
  float surely = -INF;
  if (filter.top_k && filter.top_k <= num_blocks) {
    // As many tokens as blocks are no less likely than the largest of the last of these blocks.
    s.order = s.largest;
    std::nth_element(s.order.begin(), s.order.begin() + (filter.top_k - 1), s.order.end(), std::greater<float>());
    surely = s.order[size_t(filter.top_k - 1)];
  }
  const auto is_before = [&](int64_t a, int64_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  // Few distributions need more than the likeliest tokens: more of them are looked at until what is kept ends among them.
  for (const double depth : {4.0, 7.0, 10.0, 13.0, 18.0, 30.0, -FAINT}) {
    const float below = std::max(float(double(row.largest) - depth * row.temperature), -std::numeric_limits<float>::max());
    const float least = std::max(below, surely);
    std::vector<int64_t>& ids = s.ids;
    ids.clear();
    for (int64_t block = 0; block < num_blocks; ++block) {
      if (s.largest[size_t(block)] < least) continue;
      for (int64_t i = block * BLOCK; i < (block + 1) * BLOCK; ++i)
        if (logits[i] >= least) ids.push_back(i);
    }
    bool is_closed = depth == -FAINT;
    if (filter.top_k && int64_t(ids.size()) >= filter.top_k) {
      std::nth_element(ids.begin(), ids.begin() + (filter.top_k - 1), ids.end(), is_before);
      ids.resize(size_t(filter.top_k));
      is_closed = true;
    } else if (filter.top_k && !is_closed) {
      continue;  // probabilities are those of the tokens that top_k leaves, which are not all here
    }
    std::sort(ids.begin(), ids.end(), is_before);
    std::vector<double>& weights = s.weights;
    weights.resize(ids.size());
    double sum = 0.0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const double x = double(logits[ids[i]] - row.largest) / row.temperature;
      sum += weights[i] = x < FAINT ? 0.0 : std::exp(x);
    }
    const double all = filter.top_k ? sum : total;
    double reached = 0.0;
    size_t kept = 0;
    for (; kept < ids.size(); ++kept) {
      const double probability = weights[kept] /= all;
      // A token stays when those before it have not reached top_p yet; the first always does.
      if (kept && (reached >= filter.top_p || probability < filter.min_p * weights[0] || probability <= 0.0)) break;
      reached += probability;
    }
    if (kept == ids.size() && !is_closed) continue;
    const double wanted = uniform * reached;
    double cumulative = 0.0;
    for (size_t i = 0; i + 1 < kept; ++i) {
      cumulative += weights[i];
      if (cumulative > wanted) return ids[i];
    }
    return ids[kept - 1];
  }
  return 0;
}

template <typename Lane>
int64_t draw(Scratch& s, double temperature, const Filter& filter, double uniform) {
  const float largest = *std::max_element(s.largest.begin(), s.largest.end());
  if (largest == -INF) return NOTHING;
  // Beside infinity nothing weighs anything.
  if (largest == INF) return std::max_element(s.logits.begin(), s.logits.end()) - s.logits.begin();
  const Weights<Lane> weights{s, largest, temperature};
  const bool is_filtered = filter.top_k || filter.top_p < 1.0 || filter.min_p > 0.0;
  return is_filtered ? draw_filtered(weights, filter, uniform, s) : draw_whole(weights, uniform, s);
}

struct Table {
  const void* logits;
  int64_t stride, size;
  const int64_t* rows;
  int64_t num_rows;
  const int32_t* bitmask;
  int64_t words;
  const int64_t *mask_rows, *banned, *banned_ends;
};

template <typename T, typename Lane>
void draw_all(const Table& t, const double* temperatures, const int64_t* top_k, const double* top_p, const double* min_p,
              const double* uniforms, int64_t* token_ids, int threads) {
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1 && t.num_rows > 1 && t.num_rows * t.size >= 16384)
  for (int64_t i = 0; i < t.num_rows; ++i) {
    // Kept by the threads, which stay: new pages for every row would take as long as to fill them.
    static thread_local Scratch scratch;
    const int32_t* mask = t.mask_rows[i] < 0 ? nullptr : t.bitmask + t.mask_rows[i] * t.words;
    if (!widen(static_cast<const T*>(t.logits) + t.rows[i] * t.stride, t.size, mask, t.words, scratch)) {
      token_ids[i] = NO_NUMBER;
      continue;
    }
    for (int64_t b = i ? t.banned_ends[i - 1] : 0; b < t.banned_ends[i]; ++b) ban(t.banned[b], scratch);
    token_ids[i] = draw<Lane>(scratch, temperatures[i], Filter{top_k[i], top_p[i], min_p[i]}, uniforms[i]);
  }
}

}  // namespace

// `mask_rows` is -1 where no mask rules; the banned ids of row i end at `banned_ends[i]`.
#define THINKGATE_EXPORT(SUFFIX, T, LANE)                                                                                     \
  extern "C" void draw_##SUFFIX(const void* logits, int64_t stride, int64_t size, const int64_t* rows, int64_t num_rows,      \
                                const int32_t* bitmask, int64_t words, const int64_t* mask_rows, const int64_t* banned,       \
                                const int64_t* banned_ends, const double* temperatures, const int64_t* top_k,                 \
                                const double* top_p, const double* min_p, const double* uniforms, int64_t* token_ids,         \
                                int threads) {                                                                                \
    const Table table{logits, stride, size, rows, num_rows, bitmask, words, mask_rows, banned, banned_ends};                  \
    draw_all<T, LANE>(table, temperatures, top_k, top_p, min_p, uniforms, token_ids, threads);                                \
  }

THINKGATE_EXPORT(float32, float, doubles)
THINKGATE_EXPORT(bfloat16, bf16, floats)
