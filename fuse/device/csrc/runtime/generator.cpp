#include "runtime/generator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "runtime/process.h"

namespace fuse {

namespace {
constexpr size_t kStateBytes = 16;
}

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device, uint64_t seed)
    : PhiloxGenerator(device, std::make_shared<PhiloxState>()) {
  state_->seed = seed;
}

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device, std::shared_ptr<PhiloxState> state)
    : c10::GeneratorImpl(
          c10::Device(c10::DeviceType::PrivateUse1, device),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::move(state)) {}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  check_process();
  std::lock_guard<std::mutex> guard(state_->mutex);
  state_->seed = seed;
  state_->offset = 0;
}

void PhiloxGenerator::set_offset(uint64_t offset) {
  std::lock_guard<std::mutex> guard(state_->mutex);
  state_->offset = offset;
}

uint64_t PhiloxGenerator::get_offset() const {
  std::lock_guard<std::mutex> guard(state_->mutex);
  return state_->offset;
}

uint64_t PhiloxGenerator::current_seed() const {
  check_process();
  std::lock_guard<std::mutex> guard(state_->mutex);
  return state_->seed;
}

uint64_t PhiloxGenerator::seed() {
  const uint64_t seed = c10::detail::getNonDeterministicRandom();
  set_current_seed(seed);
  return seed;
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  check_process();
  TORCH_CHECK(
      state.numel() == kStateBytes && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() &&
          state.is_cpu(),
      "RNG state of the tpu device must be a CPU torch.uint8 tensor of ",
      kStateBytes,
      " elements");
  const auto* bytes = static_cast<const uint8_t*>(state.data());
  std::lock_guard<std::mutex> guard(state_->mutex);
  std::memcpy(&state_->seed, bytes, sizeof state_->seed);
  std::memcpy(&state_->offset, bytes + sizeof state_->seed, sizeof state_->offset);
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  check_process();
  at::Tensor state =
      at::empty({kStateBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  auto* bytes = static_cast<uint8_t*>(state.mutable_data_ptr());
  std::lock_guard<std::mutex> guard(state_->mutex);
  std::memcpy(bytes, &state_->seed, sizeof state_->seed);
  std::memcpy(bytes + sizeof state_->seed, &state_->offset, sizeof state_->offset);
  return state.getIntrusivePtr();
}

c10::intrusive_ptr<c10::GeneratorImpl> PhiloxGenerator::graphsafe_get_state() const {
  return c10::make_intrusive<PhiloxGenerator>(device().index(), state_);
}

void PhiloxGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  const auto philox = c10::dynamic_intrusive_pointer_cast<PhiloxGenerator>(other);
  TORCH_CHECK_TYPE(philox, "a state of the tpu device's generator is a generator of that device");
  state_ = philox->state_;
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* copy = new PhiloxGenerator(device().index());
  std::lock_guard<std::mutex> guard(state_->mutex);
  copy->state_->seed = state_->seed;
  copy->state_->offset = state_->offset;
  return copy;
}

RandomDraw PhiloxGenerator::draw(uint64_t blocks) {
  check_process();
  std::lock_guard<std::mutex> guard(state_->mutex);
  const RandomDraw drawn{state_->seed, state_->offset};
  state_->offset += blocks;
  return drawn;
}

void check_own_generator(const at::Generator& generator) {
  const c10::DeviceType type = generator.device().type();
  TORCH_CHECK(
      type == c10::DeviceType::PrivateUse1,
      "Expected a '",
      c10::DeviceTypeName(c10::DeviceType::PrivateUse1, /*lower_case=*/true),
      "' device type for generator but found '",
      c10::DeviceTypeName(type, /*lower_case=*/true),
      "'");
}

RandomDraw draw(at::Generator& generator, uint64_t blocks) {
  std::lock_guard<std::mutex> guard(generator.mutex()); // of which state it is
  return generator.get<PhiloxGenerator>()->draw(blocks);
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* mutex = new std::mutex;
  static auto* generators = new std::deque<at::Generator>;
  std::lock_guard<std::mutex> guard(*mutex);
  auto index = static_cast<size_t>(device < 0 ? 0 : device);
  while (generators->size() <= index) {
    generators->push_back(
        at::make_generator<PhiloxGenerator>(
            static_cast<c10::DeviceIndex>(generators->size()), c10::default_rng_seed_val));
  }
  return (*generators)[index];
}

} // namespace fuse
