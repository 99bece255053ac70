// A guard under which calls are recorded, and none runs uncompiled.
#pragma once

namespace fuse {

// While one lives on a thread, its calls are recorded and none runs uncompiled.
class RecordOnly {
 public:
  RecordOnly() {
    ++depth();
  }
  ~RecordOnly() {
    --depth();
  }
  RecordOnly(const RecordOnly&) = delete;
  RecordOnly& operator=(const RecordOnly&) = delete;
  static bool here() {
    return depth() != 0;
  }

 private:
  static int& depth() {
    thread_local int found = 0;
    return found;
  }
};

} // namespace fuse
