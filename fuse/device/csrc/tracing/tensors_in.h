// Tensors in one argument of a call: itself, or the items of a list.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace fuse {

// Calls `function` with each of them. An absent item of a list of optional ones is none.
template <typename Function>
void for_tensors(const c10::IValue& value, Function&& function) {
  if (value.isTensor()) {
    function(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor()) {
        function(item.toTensor());
      }
    }
  }
}

// The argument with `function` of each of them in its place.
template <typename Function>
c10::IValue map_tensors(const c10::IValue& value, Function&& function) {
  if (value.isTensor()) {
    return function(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& item : value.toListRef()) {
      list.push_back(function(item.toTensor()));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& item : value.toListRef()) {
      list.push_back(
          item.isTensor() ? std::make_optional(function(item.toTensor())) : std::nullopt);
    }
    return list;
  }
  return value;
}

} // namespace fuse
