// Signatures: the C++ type of an operator's kernel, as a text that its schema has as well.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <c10/core/SymIntArrayRef.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace fuse {

// The name that a schema has for a C++ type of an argument or a result.
template <typename Type>
struct TypeName {
  static constexpr std::string_view kText = "?"; // none: no schema says so
};
#define FUSE_TYPE(name, ...)                        \
  template <>                                       \
  struct TypeName<__VA_ARGS__> {                    \
    static constexpr std::string_view kText = name; \
  };
FUSE_TYPE("Tensor", at::Tensor)
FUSE_TYPE("Tensor", const at::Tensor&)
FUSE_TYPE("Tensor!", at::Tensor&)
FUSE_TYPE("Tensor?", const std::optional<at::Tensor>&)
FUSE_TYPE("Tensor[]", at::TensorList)
FUSE_TYPE("Tensor[]", const at::ITensorListRef&)
FUSE_TYPE("Tensor[]", std::vector<at::Tensor>)
FUSE_TYPE("Tensor?[]", const c10::List<std::optional<at::Tensor>>&)
FUSE_TYPE("Scalar", const at::Scalar&)
FUSE_TYPE("Scalar?", const std::optional<at::Scalar>&)
FUSE_TYPE("Scalar[]", at::ArrayRef<at::Scalar>)
FUSE_TYPE("int", int64_t)
FUSE_TYPE("int?", std::optional<int64_t>)
FUSE_TYPE("int[]", at::IntArrayRef)
FUSE_TYPE("int[]?", at::OptionalIntArrayRef)
FUSE_TYPE("SymInt", c10::SymInt)
FUSE_TYPE("SymInt?", std::optional<c10::SymInt>)
FUSE_TYPE("SymInt[]", c10::SymIntArrayRef)
FUSE_TYPE("SymInt[]?", at::OptionalSymIntArrayRef)
FUSE_TYPE("float", double)
FUSE_TYPE("float?", std::optional<double>)
FUSE_TYPE("bool", bool)
FUSE_TYPE("bool?", std::optional<bool>)
FUSE_TYPE("bool[]", std::array<bool, 2>)
FUSE_TYPE("bool[]", std::array<bool, 3>)
FUSE_TYPE("str", c10::string_view)
FUSE_TYPE("str?", std::optional<c10::string_view>)
FUSE_TYPE("ScalarType", at::ScalarType)
FUSE_TYPE("ScalarType?", std::optional<at::ScalarType>)
FUSE_TYPE("Layout?", std::optional<at::Layout>)
FUSE_TYPE("Device?", std::optional<at::Device>)
FUSE_TYPE("MemoryFormat?", std::optional<at::MemoryFormat>)
#undef FUSE_TYPE

// The text of a C++ function type: "Tensor Scalar -> Tensor".
template <typename Schema>
struct Signature;

template <typename Result, typename... Arguments>
struct Signature<Result(Arguments...)> {
  static std::string text() {
    std::string found;
    ((found.append(TypeName<Arguments>::kText) += ' '), ...);
    return found.append("->").append(Results<Result>::text());
  }

 private:
  template <typename One>
  struct Results {
    static std::string text() {
      return std::is_void_v<One> ? "" : std::string(" ").append(TypeName<One>::kText);
    }
  };
  template <typename... Each>
  struct Results<std::tuple<Each...>> {
    static std::string text() {
      std::string found;
      (found.append(" ").append(TypeName<Each>::kText), ...);
      return found;
    }
  };
};

// The same of an operator.
std::string signature_of(const c10::FunctionSchema& schema);

} // namespace fuse
