// The call encoder: makes the keys of calls.
#pragma once

#include <ATen/core/ivalue.h>

#include "tracing/call_key.h"
#include "tracing/op_info.h"
#include "tracing/open_trace.h"
#include "tracing/trace_cutter.h"

namespace fuse {

// Makes the key of one call after the other, against the trace that each is recorded in. Holds the
// last one. About 100 ns for two 2-D operands; nothing is allocated once the vectors have grown.
class CallEncoder {
 public:
  explicit CallEncoder(TraceCutter& cutter) : cutter_(cutter) {}

  // Buffers that the trace has not met become leaves of it. Cuts other streams' traces for values
  // that they are still to make; throws for a tensor whose value was lost.
  const CallKey& encode(OpenTrace& trace, const OpInfo& info, c10::ArrayRef<c10::IValue> arguments);
  // The call does not become a node: the buffers it met first are strangers to the trace again.
  void undo(OpenTrace& trace);
  const CallKey& key() const {
    return key_;
  }

 private:
  void encode_value(OpenTrace& trace, const c10::IValue& value, OpInfo::Kind kind);
  void encode_tensor(OpenTrace& trace, const at::Tensor& tensor);
  void encode_host_tensor(const at::Tensor& tensor);

  TraceCutter& cutter_;
  CallKey key_;
};

} // namespace fuse
