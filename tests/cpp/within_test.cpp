#include "transport/within.h"

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>

#include "check.h"
#include "transport/threads.h"

namespace fuse::distributed {

namespace {

using std::chrono::milliseconds;

Clock::time_point in(int count) {
  return Clock::now() + milliseconds(count);
}

TEST(what_returns_in_time_is_told_so) {
  const auto ran = std::make_shared<std::atomic<bool>>(false);
  CHECK(within(in(10'000), [ran] { *ran = true; }));
  CHECK(*ran);
}

TEST(what_takes_longer_goes_on_by_itself) {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto done = std::make_shared<std::promise<void>>();
  CHECK(!within(in(20), [gate, done] {
    gate->get_future().wait();
    done->set_value();
  }));
  gate->set_value();
  CHECK(done->get_future().wait_for(milliseconds(10'000)) == std::future_status::ready);
}

TEST(what_a_function_throws_is_thrown_again) {
  CHECK_THROWS(std::out_of_range, within(in(10'000), [] { throw std::out_of_range("x"); }));
}

TEST(a_check_ends_a_wait_that_is_in_vain) {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto wait = [gate] { gate->get_future().wait(); };
  const auto begun = Clock::now();
  CHECK_THROWS(
      std::runtime_error, within(in(10'000), wait, [] { throw std::runtime_error("in vain"); }));
  CHECK(Clock::now() - begun < milliseconds(5'000));
  gate->set_value();
}

TEST(functions_that_wait_for_later_ones_have_a_thread_each) {
  constexpr int kMany = 20;
  std::vector<std::shared_ptr<std::promise<void>>> links;
  for (int at = 0; at <= kMany; ++at) {
    links.push_back(std::make_shared<std::promise<void>>());
  }
  std::shared_future<void> first = links[0]->get_future();
  for (size_t at = 0; at < kMany; ++at) {
    Threads::global().run([mine = links[at], next = links[at + 1]] {
      next->get_future().wait();
      mine->set_value();
    });
  }
  CHECK(first.wait_for(milliseconds(20)) == std::future_status::timeout);
  links[kMany]->set_value();
  CHECK(first.wait_for(milliseconds(10'000)) == std::future_status::ready);
}

} // namespace

} // namespace fuse::distributed
