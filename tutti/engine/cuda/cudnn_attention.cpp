// Attention of complete sequences and of packed documents by the fused kernels.
//
// For complete sequences the forward pass is one call, the backward pass one call per piece
// (attention_piece): the same strides at other offsets.
//
// For packed documents there is one call per length class, and first one pass of the plain kernels
// for documents of at most 64 tokens, which writes zeros to the rows of the others.
#include "tutti/engine/cuda/attention.h"
#include "tutti/engine/cuda/attention_plain.h"
#include "tutti/engine/cuda/sdpa_calls.h"
#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/notes.h"

namespace tutti::engine {

CudnnAttention::CudnnAttention(CudaStream& stream)
    : plans_(std::make_unique<SdpaPlans>(stream)), stream_(stream) {}

CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::refuse(const AttentionShape& shape, const std::string& reason) {
  refusal_ = reason;
  note(plain_attention_note(shape, reason));
  return false;
}

bool CudnnAttention::forward(const AttentionForwardArgs& args) {
  const AttentionShape request = attention_shape(args, args.sequence, args.qkv, args.out);
  if (const std::string why = why_not_fused(request); !why.empty()) return refuse(request, why);
  Attend work = attend_of(args);
  SdpaShape shape = shape_of(work, args.sequence, args.out);
  shape.lse = static_cast<bool>(args.lse);
  const SdpaOperands at = operands_of(work, args.out.data, args.lse.data);
  SdpaRun run(stream_, *plans_, piece_bytes_, "attention_forward");
  if (!args.starts) {
    if (const std::string why = run.add(shape); !why.empty()) return refuse(request, why);
    run.take_workspace([](Carver&) {});
    run.enqueue(0, at);
    return true;
  }
  PackedDocuments documents;
  if (const std::string why = documents.add(run, shape); !why.empty()) return refuse(request, why);
  run.take_workspace([&](Carver& carver) { documents.take(carver, shape); });
  documents.find(run, shape, work.starts);
  work.starts = documents.shortened;
  attend(stream_, run.op(), work);
  documents.forward(run, shape, at, args.lse ? args.lse.as<float>() : nullptr);
  return true;
}

bool CudnnAttention::backward(const AttentionBackwardArgs& args) {
  const AttentionShape request =
      attention_shape(args, args.sequence, args.qkv, args.out, args.d_out, args.d_qkv);
  if (const std::string why = why_not_fused(request); !why.empty()) return refuse(request, why);
  AttendBackward work = attend_of(args);
  const SdpaShape shape = shape_of(work, args.sequence, args.out);
  const SdpaOperands at = operands_of(work, args.out.data, args.lse.data);
  SdpaRun run(stream_, *plans_, piece_bytes_, "attention_backward");
  if (!args.starts) {
    if (const std::string why = run.add(shape); !why.empty()) return refuse(request, why);
    run.take_workspace([](Carver&) {});
    run.enqueue(0, at);
    return true;
  }
  PackedDocuments documents;
  if (const std::string why = documents.add(run, shape); !why.empty()) return refuse(request, why);
  run.take_workspace([&](Carver& carver) { documents.take(carver, shape); });
  documents.find(run, shape, work.starts);
  work.starts = documents.shortened;
  attend_backward(stream_, run.op(), work);
  documents.backward(run, shape, at, args.lse.as<float>());
  return true;
}

}  // namespace tutti::engine
