// The frame of every handler of XLA's foreign function interface: what it is bound to follows from
// its parameters' types, and it is exported under its name.
#pragma once

#include <array>
#include <type_traits>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace fuse {

template <class T>
struct IsResult : std::false_type {};
template <class T>
struct IsResult<xla::ffi::Result<T>> : std::true_type {
  using Buffer = T;
};

template <class T>
constexpr bool is_operand = !std::is_void_v<typename xla::ffi::ArgBinding<T>::Arg>;

template <class T>
constexpr bool is_attribute =
    !std::is_same_v<T, xla::ffi::ThreadPool> && !std::is_same_v<T, xla::ffi::RemainingArgs> &&
    !std::is_same_v<T, xla::ffi::RemainingRets> && !IsResult<T>::value && !is_operand<T>;

template <class...>
struct Parameters {
  template <class Function, class Binding>
  static auto bind(Function function, Binding&& binding, const char* const*) {
    return std::forward<Binding>(binding).To(function);
  }
};

// Binds one parameter after another; each attribute takes the next of `names`.
template <class First, class... Rest>
struct Parameters<First, Rest...> {
  template <class Function, class Binding>
  static auto bind(Function function, Binding&& binding, const char* const* names) {
    using Next = Parameters<Rest...>;
    if constexpr (std::is_same_v<First, xla::ffi::ThreadPool>) {
      return Next::bind(function, std::forward<Binding>(binding).template Ctx<First>(), names);
    } else if constexpr (std::is_same_v<First, xla::ffi::RemainingArgs>) {
      return Next::bind(function, std::forward<Binding>(binding).RemainingArgs(), names);
    } else if constexpr (std::is_same_v<First, xla::ffi::RemainingRets>) {
      return Next::bind(function, std::forward<Binding>(binding).RemainingRets(), names);
    } else if constexpr (IsResult<First>::value) {
      using Buffer = IsResult<First>::Buffer;
      return Next::bind(function, std::forward<Binding>(binding).template Ret<Buffer>(), names);
    } else if constexpr (is_operand<First>) {
      return Next::bind(function, std::forward<Binding>(binding).template Arg<First>(), names);
    } else {
      return Next::bind(
          function, std::forward<Binding>(binding).template Attr<First>(*names), names + 1);
    }
  }
};

template <class Outcome, class... Given, class... Names>
auto handler(Outcome (*function)(Given...), Names... names) {
  static_assert((0 + ... + is_attribute<Given>) == sizeof...(Names), "every attribute has a name");
  const std::array<const char*, sizeof...(Names) + 1> all{names..., nullptr};
  return Parameters<Given...>::bind(function, xla::ffi::Ffi::Bind(), all.data());
}

} // namespace fuse

// Exports fuse::name as fuse_name; the names of its attributes follow, in its parameters' order.
#define FUSE_HANDLER(name, ...)                                                            \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* fuse_##name(            \
      XLA_FFI_CallFrame* frame) {                                                          \
    static auto* handler = fuse::handler(fuse::name __VA_OPT__(, ) __VA_ARGS__).release(); \
    return handler->Call(frame);                                                           \
  }
