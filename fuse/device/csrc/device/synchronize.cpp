#include "device/synchronize.h"

#include "runtime/copier.h"
#include "runtime/python_bridge.h"
#include "tracing/recorder.h"

namespace fuse {

void await_engine() {
  GilGuard gil;
  call_engine("wait", pack());
}

bool is_idle() {
  if (!Copier::global().idle()) {
    return false;
  }
  GilGuard gil;
  return call_engine("idle", pack()).get() == Py_True;
}

void synchronize() {
  Recorder::global().cut_all(CutReason::Synchronize);
  Copier::global().wait_for_all();
  await_engine();
}

} // namespace fuse
