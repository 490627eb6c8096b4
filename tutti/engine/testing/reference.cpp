#include "tutti/engine/testing/reference.h"

#include <algorithm>
#include <cmath>

namespace tutti::engine::reference {
namespace {

size_t at(int64_t row, int64_t cols, int64_t col) { return static_cast<size_t>(row * cols + col); }

}  // namespace

Values gemm(const Values& a, bool transpose_a, const Values& b, bool transpose_b, int64_t m,
            int64_t n, int64_t k, double beta, const Values& c, const Values& bias) {
  Values out(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = bias.empty() ? 0 : bias[static_cast<size_t>(j)];
      if (beta != 0) sum += beta * c[at(i, n, j)];
      for (int64_t l = 0; l < k; ++l) {
        sum +=
            a[transpose_a ? at(l, m, i) : at(i, k, l)] * b[transpose_b ? at(j, k, l) : at(l, n, j)];
      }
      out[at(i, n, j)] = sum;
    }
  }
  return out;
}

Values column_sum(const Values& x, int64_t rows, int64_t cols, double beta, const Values& out) {
  Values sums(static_cast<size_t>(cols));
  for (int64_t j = 0; j < cols; ++j) {
    double& sum = sums[static_cast<size_t>(j)];
    if (beta != 0) sum = beta * out[static_cast<size_t>(j)];
    for (int64_t r = 0; r < rows; ++r) sum += x[at(r, cols, j)];
  }
  return sums;
}

Values embedding_forward(const Values& tokens, const Values& token_table, const Values& positions,
                         const Values& position_table, int64_t hidden) {
  Values out;
  for (size_t r = 0; r < tokens.size(); ++r) {
    for (int64_t j = 0; j < hidden; ++j) {
      double sum = token_table[at(static_cast<int64_t>(tokens[r]), hidden, j)];
      if (!position_table.empty()) {
        sum += position_table[at(static_cast<int64_t>(positions[r]), hidden, j)];
      }
      out.push_back(sum);
    }
  }
  return out;
}

Values embedding_backward(const Values& indices, const Values& d_out, int64_t hidden,
                          const Values& table) {
  Values out = table;
  for (size_t r = 0; r < indices.size(); ++r) {
    for (int64_t j = 0; j < hidden; ++j) {
      out[at(static_cast<int64_t>(indices[r]), hidden, j)] +=
          d_out[at(static_cast<int64_t>(r), hidden, j)];
    }
  }
  return out;
}

CrossEntropy cross_entropy(const Values& logits, int64_t cols, int64_t vocabulary,
                           const Values& targets, double scale, int64_t gradient_cols) {
  const auto rows = static_cast<int64_t>(targets.size());
  CrossEntropy out{Values(targets.size()), Values(static_cast<size_t>(rows * gradient_cols))};
  for (int64_t r = 0; r < rows; ++r) {
    const auto target = static_cast<int64_t>(targets[static_cast<size_t>(r)]);
    if (target < 0) continue;
    double highest = logits[at(r, cols, 0)];
    for (int64_t j = 0; j < vocabulary; ++j) highest = std::max(highest, logits[at(r, cols, j)]);
    double sum = 0;
    for (int64_t j = 0; j < vocabulary; ++j) sum += std::exp(logits[at(r, cols, j)] - highest);
    const double lse = highest + std::log(sum);
    out.loss[static_cast<size_t>(r)] = lse - logits[at(r, cols, target)];
    for (int64_t j = 0; j < vocabulary; ++j) {
      const double onehot = j == target ? 1 : 0;
      out.gradient[at(r, gradient_cols, j)] =
          scale * (std::exp(logits[at(r, cols, j)] - lse) - onehot);
    }
  }
  return out;
}

DistillCrossEntropy distill_cross_entropy(const Values& logits, const Values& teacher, int64_t cols,
                                          int64_t vocabulary, const Values& targets,
                                          double temperature, double weight, double scale,
                                          int64_t gradient_cols) {
  const CrossEntropy plain =
      cross_entropy(logits, cols, vocabulary, targets, scale * (1 - weight), gradient_cols);
  DistillCrossEntropy out{plain.loss, Values(targets.size()), plain.gradient};
  const auto log_softmax = [&](const Values& x, int64_t r) {
    Values row;
    for (int64_t j = 0; j < vocabulary; ++j) row.push_back(x[at(r, cols, j)] / temperature);
    const double highest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double value : row) sum += std::exp(value - highest);
    for (double& value : row) value -= highest + std::log(sum);
    return row;
  };
  for (size_t r = 0; r < targets.size(); ++r) {
    if (targets[r] < 0) continue;
    const auto row = static_cast<int64_t>(r);
    const Values p = log_softmax(teacher, row);
    const Values q = log_softmax(logits, row);
    for (int64_t j = 0; j < vocabulary; ++j) {
      const double log_p = p[static_cast<size_t>(j)], log_q = q[static_cast<size_t>(j)];
      out.divergence[r] += temperature * temperature * std::exp(log_p) * (log_p - log_q);
      out.gradient[at(row, gradient_cols, j)] +=
          scale * weight * temperature * (std::exp(log_q) - std::exp(log_p));
    }
  }
  return out;
}

void adamw(AdamwState& state, const Values& gradient, const Values& decay, double learning_rate,
           double beta1, double beta2, double epsilon, double clip, int64_t step) {
  const double bias1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double bias2 = 1 - std::pow(beta2, static_cast<double>(step));
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * clip;
    state.m[i] = beta1 * state.m[i] + (1 - beta1) * g;
    state.v[i] = beta2 * state.v[i] + (1 - beta2) * g * g;
    state.master[i] -=
        learning_rate * (state.m[i] / bias1 / (std::sqrt(state.v[i] / bias2) + epsilon) +
                         decay[i] * state.master[i]);
  }
}

double squared_norm(const Values& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return sum;
}

}  // namespace tutti::engine::reference
