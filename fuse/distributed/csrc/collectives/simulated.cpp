#include "collectives/simulated.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "collectives/values.h"

namespace fuse::distributed {

void simulate(Call& call, Callbacks& callbacks) {
  if (call.kind == Kind::Barrier) {
    return;
  }
  if (call.on_device) {
    call.most = call.sent.empty() ? 0 : *std::max_element(call.sent.begin(), call.sent.end());
    callbacks.run(call);
    return;
  }
  for (size_t at = 0; at < call.targets.size() && !call.sources.empty(); ++at) {
    Target& target = call.targets[at];
    const size_t from = call.kind == Kind::AllGather ? at / call.parts : at;
    const at::Tensor own = host_of(call.sources[from % call.sources.size()]);
    const int64_t wanted = target.tensor.numel();
    if (wanted > 0 && own.numel() > 0) {
      const int64_t times = (wanted + own.numel() - 1) / own.numel();
      give(target, own.repeat({times}).narrow(0, 0, wanted));
    }
  }
}

} // namespace fuse::distributed
