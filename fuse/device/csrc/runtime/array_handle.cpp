#include "runtime/array_handle.h"

#include "runtime/python_bridge.h"

namespace fuse {

ArrayHandle::~ArrayHandle() {
  if (array_ != nullptr) {
    release_later(array_);
  }
  account_held(this, -static_cast<int64_t>(nbytes_));
}

} // namespace fuse
