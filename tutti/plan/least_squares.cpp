#include "tutti/plan/least_squares.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tutti::plan {
namespace {

using Vector = std::vector<double>;

double squares(const Vector& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

// Solves n equations a x = b by elimination with pivoting; a is row-major.
Vector solve(Vector a, Vector b) {
  const size_t n = b.size();
  for (size_t c = 0; c < n; ++c) {
    size_t pivot = c;
    for (size_t r = c + 1; r < n; ++r) {
      if (std::abs(a[r * n + c]) > std::abs(a[pivot * n + c])) pivot = r;
    }
    if (a[pivot * n + c] == 0) continue;
    for (size_t k = 0; k < n; ++k) std::swap(a[c * n + k], a[pivot * n + k]);
    std::swap(b[c], b[pivot]);
    for (size_t r = c + 1; r < n; ++r) {
      const double factor = a[r * n + c] / a[c * n + c];
      for (size_t k = c; k < n; ++k) a[r * n + k] -= factor * a[c * n + k];
      b[r] -= factor * b[c];
    }
  }
  Vector x(n, 0);
  for (size_t c = n; c-- > 0;) {
    if (a[c * n + c] == 0) continue;
    double sum = b[c];
    for (size_t k = c + 1; k < n; ++k) sum -= a[c * n + k] * x[k];
    x[c] = sum / a[c * n + c];
  }
  return x;
}

}  // namespace

Vector fit_least_squares(const std::function<Vector(const Vector&)>& residuals, Vector start,
                         const Vector& least, const Vector& most, int rounds) {
  const size_t n = start.size();
  Vector at = std::move(start);
  for (size_t i = 0; i < n; ++i) at[i] = std::clamp(at[i], least[i], most[i]);
  Vector now = residuals(at);
  double best = squares(now);
  double damping = 1e-3;
  for (int round = 0; round < rounds; ++round) {
    // Columns of the Jacobian; steps are relative to the range and stay inside it.
    std::vector<Vector> columns(n);
    for (size_t i = 0; i < n; ++i) {
      double step = 1e-6 * std::max(std::abs(at[i]), 1e-3 * (most[i] - least[i]));
      if (at[i] + step > most[i]) step = -step;
      Vector moved = at;
      moved[i] += step;
      columns[i] = residuals(moved);
      for (size_t k = 0; k < now.size(); ++k) columns[i][k] = (columns[i][k] - now[k]) / step;
    }
    Vector normal(n * n);
    Vector slope(n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        for (size_t k = 0; k < now.size(); ++k) normal[i * n + j] += columns[i][k] * columns[j][k];
      }
      for (size_t k = 0; k < now.size(); ++k) slope[i] -= columns[i][k] * now[k];
      // A variable that is pushed against its bound stays there.
      if ((at[i] <= least[i] && slope[i] < 0) || (at[i] >= most[i] && slope[i] > 0)) {
        for (size_t j = 0; j < n; ++j) normal[i * n + j] = normal[j * n + i] = 0;
        slope[i] = 0;
        normal[i * n + i] = 1;
      }
    }
    bool better = false;
    while (damping < 1e12) {
      Vector damped = normal;
      for (size_t i = 0; i < n; ++i) damped[i * n + i] = normal[i * n + i] * (1 + damping) + 1e-300;
      const Vector move = solve(damped, slope);
      Vector next = at;
      for (size_t i = 0; i < n; ++i) next[i] = std::clamp(at[i] + move[i], least[i], most[i]);
      Vector there = residuals(next);
      const double value = squares(there);
      if (value < best) {
        better = best - value > 1e-14 * best;
        at = std::move(next);
        now = std::move(there);
        best = value;
        damping = std::max(damping / 10, 1e-12);
        break;
      }
      damping *= 10;
    }
    if (!better) break;
  }
  return at;
}

}  // namespace tutti::plan
