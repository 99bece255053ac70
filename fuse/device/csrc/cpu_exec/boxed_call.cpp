#include "cpu_exec/boxed_call.h"

#include <optional>

#include "cpu_exec/host_call.h"
#include "runtime/generator.h"
#include "runtime/process.h"
#include "tracing/masked_put.h"
#include "tracing/prepare.h"
#include "tracing/recorder.h"

namespace fuse {

void call_boxed(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack* stack) {
  check_process();
  if (info.generator >= 0) {
    const auto at = static_cast<size_t>(info.generator);
    const c10::IValue& given = torch::jit::last(*stack, info.kinds.size())[at];
    if (given.isGenerator()) {
      check_own_generator(given.toGenerator());
    }
  }
  if (info.indexes && put_by_mask(info, stack)) {
    return;
  }
  if (info.writes && writes_unresolved(info, *stack)) [[unlikely]] {
    call_on_resolved(op, info, stack);
    return;
  }
  prepare(info, stack);
  Recorder& recorder = Recorder::global();
  std::optional<RecordOnly> recorded; // where the CPU's kernel met a limit
  if (recorder.continues_uncompiled({op, info, torch::jit::last(*stack, info.kinds.size())})) {
    if (run_on_host(op, info, stack, HostRun::Uncompiled)) {
      return;
    }
    recorded.emplace();
  }
  for (;;) {
    const RecordOutcome outcome = recorder.record(op, info, stack);
    if (outcome.as == RecordOutcome::As::Call) {
      return;
    }
    const bool fallback = outcome.as == RecordOutcome::As::Fallback;
    const HostRun run = fallback ? HostRun::Fallback : HostRun::Uncompiled;
    if (run_on_host(op, info, stack, run, outcome.why)) {
      return;
    }
    recorded.emplace();
  }
}

} // namespace fuse
