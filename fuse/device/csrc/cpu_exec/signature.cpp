#include "cpu_exec/signature.h"

namespace fuse {

namespace {

// PyTorch's own name for the type that a kernel takes, which tells sizes that may be symbolic.
std::string name_of(const c10::Argument& argument) {
  std::string name = argument.real_type()->str();
  const c10::AliasInfo* alias = argument.alias_info();
  return alias != nullptr && alias->isWrite() && name == "Tensor" ? name + "!" : name;
}

} // namespace

std::string signature_of(const c10::FunctionSchema& schema) {
  std::string text;
  for (const c10::Argument& argument : schema.arguments()) {
    text.append(name_of(argument)) += ' ';
  }
  text += "->";
  for (const c10::Argument& result : schema.returns()) {
    text.append(" ").append(name_of(result));
  }
  return text;
}

} // namespace fuse
