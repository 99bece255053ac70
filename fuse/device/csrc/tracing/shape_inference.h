// Shape inference: the metadata of a call's results, from PyTorch's meta kernels.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>

#include "tracing/call_key.h"
#include "tracing/op_info.h"
#include "tracing/shape_cache.h"

namespace fuse {

// Why a call is not recorded; none if it is.
using Refusal = std::optional<std::string>;

// A call as PyTorch's dispatcher hands it over.
struct BoxedCall {
  const c10::OperatorHandle& op;
  const OpInfo& info;
  c10::ArrayRef<c10::IValue> arguments;
};

class ShapeInference {
 public:
  // Gives the node what the call makes, writes, resizes and returns.
  Refusal infer(TrieNode& node, const CallKey& key, const BoxedCall& call);

 private:
  ShapeCache cache_;
};

} // namespace fuse
