#include "tutti/engine/testing/on_host/sdpa.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tutti::engine::on_host {
namespace {

double dot(const bf16* a, const bf16* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{to_f32(a[i])} * double{to_f32(b[i])};
  return sum;
}

void store(const std::vector<double>& values, bf16* to) {
  for (size_t i = 0; i < values.size(); ++i) to[i] = to_bf16(static_cast<float>(values[i]));
}

// Query `query` of batch element b attends to keys [0, result).
int64_t seen_keys(const HostAttention& x, int64_t b, int64_t query) {
  const int64_t count = x.key_counts != nullptr ? x.key_counts[b] : x.keys;
  return x.causal ? std::min(count, query + 1) : count;
}

int64_t query_count(const HostAttention& x, int64_t b) {
  return x.query_counts != nullptr ? x.query_counts[b] : x.queries;
}

// Accumulates into [rows, dim] sums.
void add_scaled(double weight, const bf16* from, int64_t row, int64_t dim,
                std::vector<double>& sums) {
  double* to = sums.data() + row * dim;
  for (int64_t c = 0; c < dim; ++c) to[c] += weight * double{to_f32(from[c])};
}

void store_rows(const std::vector<double>& sums, int64_t rows, int64_t dim,
                const HostRows<bf16>& to, int64_t b, int64_t head) {
  for (int64_t r = 0; r < rows; ++r) {
    store({sums.begin() + r * dim, sums.begin() + (r + 1) * dim}, to.at(b, head, r));
  }
}

// One key/value head of a batch element, with the query heads that share it.
void backward_of(const HostAttention& x, int64_t b, int64_t kv) {
  const int64_t group = x.heads / x.kv_heads;
  const int64_t queries = query_count(x, b);
  const int64_t keys = x.key_counts != nullptr ? x.key_counts[b] : x.keys;
  std::vector<double> d_k(static_cast<size_t>(keys * x.dim));
  std::vector<double> d_v = d_k;
  for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
    std::vector<double> d_q(static_cast<size_t>(queries * x.dim));
    for (int64_t i = 0; i < queries; ++i) {
      const bf16* d_out = x.d_out.at(b, head, i);
      const double delta = dot(d_out, x.out.at(b, head, i), x.dim);
      for (int64_t j = 0; j < seen_keys(x, b, i); ++j) {
        const bf16* key = x.k.at(b, kv, j);
        const double score = dot(x.q.at(b, head, i), key, x.dim) * double{x.scale};
        const double p = std::exp(score - double{*x.stats.at(b, head, i)});
        const double ds = p * (dot(d_out, x.v.at(b, kv, j), x.dim) - delta) * double{x.scale};
        add_scaled(p, d_out, j, x.dim, d_v);
        add_scaled(ds, x.q.at(b, head, i), j, x.dim, d_k);
        add_scaled(ds, key, i, x.dim, d_q);
      }
    }
    store_rows(d_q, queries, x.dim, x.d_q, b, head);
  }
  store_rows(d_k, keys, x.dim, x.d_k, b, kv);
  store_rows(d_v, keys, x.dim, x.d_v, b, kv);
}

}  // namespace

void attend(const HostAttention& x) {
  for (int64_t b = 0; b < x.batch; ++b) {
    for (int64_t head = 0; head < x.heads; ++head) {
      const int64_t kv = head / (x.heads / x.kv_heads);
      // The content of missing rows is undefined.
      for (int64_t i = query_count(x, b); x.stats.data != nullptr && i < x.queries; ++i) {
        *x.stats.at(b, head, i) = std::numeric_limits<float>::quiet_NaN();
      }
      for (int64_t i = 0; i < query_count(x, b); ++i) {
        std::vector<double> p(static_cast<size_t>(seen_keys(x, b, i)));
        double most = -std::numeric_limits<double>::infinity();
        for (size_t j = 0; j < p.size(); ++j) {
          const bf16* key = x.k.at(b, kv, static_cast<int64_t>(j));
          p[j] = dot(x.q.at(b, head, i), key, x.dim) * double{x.scale};
          most = std::isnan(p[j]) ? p[j] : std::max(most, p[j]);
        }
        double sum = 0;
        for (double& one : p) sum += one = std::exp(one - most);
        std::vector<double> out(static_cast<size_t>(x.dim));
        for (size_t j = 0; j < p.size(); ++j) {
          add_scaled(p[j] / sum, x.v.at(b, kv, static_cast<int64_t>(j)), 0, x.dim, out);
        }
        store(out, x.out.at(b, head, i));
        if (x.stats.data != nullptr) {
          *x.stats.at(b, head, i) = static_cast<float>(most + std::log(sum));
        }
      }
    }
  }
}

void attend_backward(const HostAttention& x) {
  for (int64_t b = 0; b < x.batch; ++b) {
    for (int64_t kv = 0; kv < x.kv_heads; ++kv) backward_of(x, b, kv);
  }
}

}  // namespace tutti::engine::on_host
