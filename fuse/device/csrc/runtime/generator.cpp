#include "runtime/generator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <deque>
#include <mutex>

#include "runtime/process.h"

namespace fuse {

namespace {
constexpr size_t kStateBytes = 16;
}

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device, uint64_t seed)
    : c10::GeneratorImpl(
          c10::Device(c10::DeviceType::PrivateUse1, device),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(seed) {}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  check_process();
  seed_ = seed;
  offset_ = 0;
}

void PhiloxGenerator::set_offset(uint64_t offset) {
  offset_ = offset;
}

uint64_t PhiloxGenerator::get_offset() const {
  return offset_;
}

uint64_t PhiloxGenerator::current_seed() const {
  check_process();
  return seed_;
}

uint64_t PhiloxGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
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
  std::memcpy(&seed_, bytes, sizeof seed_);
  std::memcpy(&offset_, bytes + sizeof seed_, sizeof offset_);
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  check_process();
  at::Tensor state =
      at::empty({kStateBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  auto* bytes = static_cast<uint8_t*>(state.mutable_data_ptr());
  std::memcpy(bytes, &seed_, sizeof seed_);
  std::memcpy(bytes + sizeof seed_, &offset_, sizeof offset_);
  return state.getIntrusivePtr();
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* copy = new PhiloxGenerator(device().index(), seed_);
  copy->offset_ = offset_;
  return copy;
}

RandomDraw draw(at::Generator& generator, uint64_t blocks) {
  std::lock_guard<std::mutex> guard(generator.mutex());
  RandomDraw state{generator.current_seed(), generator.get_offset()};
  generator.set_offset(state.offset + blocks);
  return state;
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
