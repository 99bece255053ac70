// A wait with a bound: for a function, no longer than so long.
#pragma once

#include <chrono>
#include <functional>

namespace fuse::distributed {

using Clock = std::chrono::steady_clock;

// Runs the function on another thread; whether it returned before the deadline. A call to a store
// blocks for as long as the process that holds it is stopped, whatever its time-out. Later than the
// deadline the function goes on by itself: it owns what it uses. Rethrows what it throws, and calls
// `check` now and then meanwhile, which may throw why the wait is in vain.
bool within(
    Clock::time_point deadline,
    std::function<void()> function,
    const std::function<void()>& check = nullptr);

} // namespace fuse::distributed
