// Which operators have kernels that know their types, by the list of types in signatures.h.
#include "cpu_exec/typed_kernel.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "cpu_exec/signature.h"

namespace fuse {

namespace {

using Make = std::optional<c10::KernelFunction> (*)(const c10::OperatorHandle&, Otherwise);

template <typename Schema>
std::optional<c10::KernelFunction> make(const c10::OperatorHandle& op, Otherwise otherwise) {
  return typed_kernel<Schema>(op, otherwise);
}

using Makers = std::unordered_map<std::string, std::vector<Make>>;

Makers makers() {
  Makers found;
#define FUSE_SIGNATURE(...) found[Signature<__VA_ARGS__>::text()].push_back(&make<__VA_ARGS__>);
#include "cpu_exec/signatures.h"
#undef FUSE_SIGNATURE
  return found;
}

} // namespace

std::optional<c10::KernelFunction> typed_kernel(
    const c10::OperatorHandle& op, Otherwise otherwise) {
  static const Makers known = makers();
  const auto found = known.find(signature_of(op.schema()));
  if (found != known.end()) {
    for (const Make make : found->second) {
      if (auto kernel = make(op, otherwise)) {
        return kernel;
      }
    }
  }
  return std::nullopt;
}

} // namespace fuse
