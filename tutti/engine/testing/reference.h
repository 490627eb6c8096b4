// Reference implementations of the operations of engine/ops.h for tests of kernels: plain f64 loops
// on row-major std::vector<double>. Inputs are rounded to the compute type (TestMatrix::values()).
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/ops.h"

namespace tutti::engine::reference {

using Values = std::vector<double>;

// op(A)[m,k] * op(B)[k,n] + beta * c + bias; bias may be empty, and c if beta is 0.
Values gemm(const Values& a, bool transpose_a, const Values& b, bool transpose_b, int64_t m,
            int64_t n, int64_t k, double beta, const Values& c, const Values& bias);

Values column_sum(const Values& x, int64_t rows, int64_t cols, double beta, const Values& out);

// tokens and positions are integers; an empty position table adds nothing.
Values embedding_forward(const Values& tokens, const Values& token_table, const Values& positions,
                         const Values& position_table, int64_t hidden);
// table plus the rows of d_out, added at `indices`.
Values embedding_backward(const Values& indices, const Values& d_out, int64_t hidden,
                          const Values& table);

struct CrossEntropy {
  Values loss;      // [rows]
  Values gradient;  // [rows, gradient_cols]
};
CrossEntropy cross_entropy(const Values& logits, int64_t cols, int64_t vocabulary,
                           const Values& targets, double scale, int64_t gradient_cols);

// divergence: T^2 KL; gradient: of (1 - weight) * loss + weight * divergence, times scale.
struct DistillCrossEntropy {
  Values loss, divergence;  // [rows]
  Values gradient;          // [rows, gradient_cols]
};
DistillCrossEntropy distill_cross_entropy(const Values& logits, const Values& teacher, int64_t cols,
                                          int64_t vocabulary, const Values& targets,
                                          double temperature, double weight, double scale,
                                          int64_t gradient_cols);

// One step over all elements, in place; decay is per element.
struct AdamwState {
  Values master, m, v;
};
void adamw(AdamwState& state, const Values& gradient, const Values& decay, double learning_rate,
           double beta1, double beta2, double epsilon, double clip, int64_t step);

double squared_norm(const Values& x);

}  // namespace tutti::engine::reference
