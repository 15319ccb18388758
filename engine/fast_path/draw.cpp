// Draws tokens of rows of float32 logits by inverse CDF, with or without filters; the twin of `sampler.py`'s PyTorch operations.
//
// Compiled on the user's machine by `native.py`, without any header of PyTorch, and called through ctypes. Weights are computed in
// float64. Sums are taken in blocks, so the last bits of a sum differ from PyTorch's; nothing depends on the batch or on threads.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

constexpr int64_t LANES = 8, BLOCK = 64;
typedef double doubles __attribute__((vector_size(64)));
typedef int64_t longs __attribute__((vector_size(64)));
typedef float floats __attribute__((vector_size(32)));

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

struct Row {
  const float* logits;
  int64_t size;
  double temperature;
  float largest;

  // Weights of eight tokens from `start` on; what lies behind the row weighs nothing.
  inline doubles weights(int64_t start) const {
    floats x;
    if (start + LANES <= size) {
      std::memcpy(&x, logits + start, sizeof x);
    } else {
      for (int64_t i = 0; i < LANES; ++i) x[i] = start + i < size ? logits[start + i] : -std::numeric_limits<float>::infinity();
    }
    // The largest is taken off first: divided by a tiny temperature it would be infinite.
    return exp_of(__builtin_convertvector(x - largest, doubles) / temperature);
  }

  double block_weight(int64_t start) const {
    doubles sums = {};
    for (int64_t i = start; i < std::min(size, start + BLOCK); i += LANES) sums += weights(i);
    double sum = 0.0;
    for (int64_t i = 0; i < LANES; ++i) sum += sums[i];
    return sum;
  }
};

float largest_of(const float* x, int64_t size) {
  float most[16];
  for (float& value : most) value = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + 16 <= size; i += 16)
    for (int64_t j = 0; j < 16; ++j) most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
  for (; i < size; ++i) most[0] = x[i] > most[0] ? x[i] : most[0];
  return *std::max_element(most, most + 16);
}

int64_t draw_whole(const Row& row, double uniform, std::vector<double>& scratch) {
  const int64_t num_blocks = (row.size + BLOCK - 1) / BLOCK;
  scratch.resize(size_t(num_blocks));
  double total = 0.0;
  for (int64_t i = 0; i < num_blocks; ++i) total += scratch[size_t(i)] = row.block_weight(i * BLOCK);
  const double wanted = uniform * total;
  double before = 0.0;
  int64_t block = 0, chosen = 0;
  // Rounding can put the draw on the sum itself; the last that can be drawn takes it.
  for (int64_t i = 0; i < num_blocks; ++i) {
    if (scratch[size_t(i)] <= 0.0) continue;
    if (i > block) {
      const double sum = before + scratch[size_t(block)];
      if (sum > wanted) break;
      before = sum;
    }
    block = i;
  }
  double sum = before;
  for (int64_t start = block * BLOCK; start < std::min(row.size, (block + 1) * BLOCK); start += LANES) {
    const doubles weights = row.weights(start);
    for (int64_t i = 0; i < LANES; ++i) {
      if (weights[i] <= 0.0) continue;
      sum += weights[i];
      chosen = start + i;
      if (sum > wanted) return chosen;
    }
  }
  return chosen;
}

struct Filter {
  int64_t top_k;  // 0 is none
  double top_p, min_p;
};

int64_t draw_filtered(const Row& row, const Filter& filter, double uniform, std::vector<int64_t>& ids, std::vector<double>& weights) {
  double total = 0.0;
  if (!filter.top_k)
    for (int64_t start = 0; start < row.size; start += BLOCK) total += row.block_weight(start);
  const auto is_before = [&](int64_t a, int64_t b) { return row.logits[a] != row.logits[b] ? row.logits[a] > row.logits[b] : a < b; };
  // Few distributions need more than the likeliest tokens: more of them are looked at until what is kept ends among them.
  for (const double depth : {4.0, 7.0, 10.0, 13.0, 18.0, 30.0, -FAINT}) {
    const float least = std::max(float(double(row.largest) - depth * row.temperature), -std::numeric_limits<float>::max());
    ids.clear();
    for (int64_t i = 0; i < row.size; ++i)
      if (row.logits[i] >= least) ids.push_back(i);
    bool is_closed = depth == -FAINT;
    if (filter.top_k && int64_t(ids.size()) >= filter.top_k) {
      std::nth_element(ids.begin(), ids.begin() + (filter.top_k - 1), ids.end(), is_before);
      ids.resize(size_t(filter.top_k));
      is_closed = true;
    } else if (filter.top_k && !is_closed) {
      continue;  // probabilities are those of the tokens that top_k leaves, which are not all here
    }
    std::sort(ids.begin(), ids.end(), is_before);
    weights.resize(ids.size());
    double sum = 0.0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const double x = double(row.logits[ids[i]] - row.largest) / row.temperature;
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

}  // namespace

extern "C" void draw_rows(const float* logits, int64_t stride, int64_t size, const int64_t* rows, int64_t num_rows,
                          const double* temperatures, const int64_t* top_k, const double* top_p, const double* min_p,
                          const double* uniforms, int64_t* token_ids, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1 && num_rows > 1 && num_rows * size >= 16384)
  {
    std::vector<int64_t> ids;
    std::vector<double> scratch;
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < num_rows; ++i) {
      const float* line = logits + rows[i] * stride;
      const Row row{line, size, temperatures[i], largest_of(line, size)};
      if (!std::isfinite(row.largest)) {
        token_ids[i] = std::max_element(line, line + size) - line;  // beside infinity nothing weighs anything
        continue;
      }
      const Filter filter{top_k[i], top_p[i], min_p[i]};
      const bool is_filtered = filter.top_k || filter.top_p < 1.0 || filter.min_p > 0.0;
      token_ids[i] = is_filtered ? draw_filtered(row, filter, uniforms[i], ids, scratch) : draw_whole(row, uniforms[i], scratch);
    }
  }
}
