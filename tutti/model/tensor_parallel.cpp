#include "tutti/model/tensor_parallel.h"

#include "tutti/base/check.h"

namespace tutti::model {
namespace {

engine::Vector flat(const engine::Matrix& x) {
  TUTTI_CHECK(x.ld == x.cols, "rows of {} columns, {} apart, are not contiguous", x.cols, x.ld);
  return engine::vector(x.data, x.dtype, x.rows * x.cols);
}

int64_t block(const comm::Group* tp, int64_t rows) {
  const int64_t ranks = tensor_ranks(tp);
  TUTTI_CHECK(rows % ranks == 0, "{} rows on {} tensor parallel ranks", rows, ranks);
  return rows / ranks;
}

}  // namespace

int64_t first_own_row(const comm::Group* tp, int64_t rows) {
  return tensor_rank(tp) * block(tp, rows);
}

engine::Matrix own_rows(const comm::Group* tp, engine::Matrix whole) {
  if (tp == nullptr || !whole) return whole;
  return whole.slice_rows(first_own_row(tp, whole.rows), block(tp, whole.rows));
}

engine::Vector own_rows(const comm::Group* tp, engine::Vector whole) {
  if (tp == nullptr || !whole) return whole;
  const int64_t first = first_own_row(tp, whole.count);
  return engine::vector(static_cast<char*>(whole.data) + first * dtype_bytes(whole.dtype),
                        whole.dtype, block(tp, whole.count));
}

engine::Matrix gather_rows(engine::Stream& stream, comm::Group* tp, engine::Matrix own,
                           engine::Matrix whole) {
  if (tp == nullptr) return own;
  tp->all_gather(stream, flat(own), flat(whole)).wait(stream);
  return whole;
}

void scatter_rows(engine::Stream& stream, comm::Group* tp, engine::Matrix whole) {
  if (tp == nullptr) return;
  tp->reduce_scatter(stream, flat(whole), flat(own_rows(tp, whole))).wait(stream);
}

}  // namespace tutti::model
