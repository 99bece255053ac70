#pragma once

#include <cstdint>

namespace fuse {

// How the traces end that begin with one call: whether they have been brief, see
// Recorder::is_brief.
class BriefEnd {
 public:
  // Whether a trace that begins here is to run uncompiled.
  bool expected() const {
    return row_ >= needed_;
  }
  // A trace that began here has been cut.
  void ends(bool brief) {
    row_ = brief ? row_ + 1 : 0;
  }
  // One that ran uncompiled went on for longer: the rest of it is a stream of its own. Where that
  // happens again and again, none is expected to be brief any more.
  void went_on() {
    row_ = 0;
    needed_ = needed_ < kMost ? needed_ * kPatience : kMost;
  }

 private:
  static constexpr uint32_t kPatience = 4;
  static constexpr uint32_t kMost = 1 << 30;

  uint32_t row_ = 0; // brief ones in a row
  uint32_t needed_ = kPatience;
};

} // namespace fuse
