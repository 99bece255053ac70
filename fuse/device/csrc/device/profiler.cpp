// The device's part of torch.profiler, as a plug-in of Kineto's. PyTorch takes one from 2.13 on.
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)

#define USE_KINETO
#define FMT_HEADER_ONLY 1

#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/Exceptions.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/synchronize.h"
#include "runtime/device_index.h"
#include "runtime/python_bridge.h"
#include "tracing/streams.h"

namespace fuse {

namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

// The calls that a thread is in, as the profiler numbers them.
thread_local std::vector<uint64_t> calls;

// What the engine asks of the thread that works for it: see fuse/engine/profile.py.
PyObject* where(PyObject*, PyObject*) {
  return Py_BuildValue(
      "(KLi)",
      calls.empty() ? 0 : calls.back(),
      Streams::global().here().number(),
      static_cast<int>(current_device()));
}

PyMethodDef where_method{"where", where, METH_NOARGS, "The thread's call, stream and device."};

const std::set<ActivityType>& activities() {
  static const std::set<ActivityType> types{
      ActivityType::CONCURRENT_KERNEL,
      ActivityType::GPU_MEMCPY,
      ActivityType::PRIVATEUSE1_RUNTIME,
  };
  return types;
}

// One profile. What is recorded before its begin runs before it, and what is at its end within it.
class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    run_all();
    GilGuard gil;
    call_engine("profile", pack(PyRef::steal(checked(PyCFunction_New(&where_method, nullptr)))));
    status_ = libkineto::TraceStatus::RECORDING;
    pass_interrupt_on();
  }
  void stop() override { // also of one that has not begun: a schedule's may end while it warms up
    if (status_ != libkineto::TraceStatus::RECORDING) {
      return;
    }
    run_all();
    GilGuard gil;
    PyRef found = call_engine("profile", pack(PyRef::borrow(Py_None)));
    const Py_ssize_t count = PyList_Size(found.get());
    for (Py_ssize_t at = 0; at < count; ++at) {
      add(PyList_GetItem(found.get(), at));
    }
    buffer_->gpuOpCount = static_cast<int>(count);
    status_ = libkineto::TraceStatus::PROCESSING;
    pass_interrupt_on();
  }
  std::vector<std::string> errors() override {
    return errors_;
  }
  void processTrace(libkineto::ActivityLogger& logger) override {
    for (const auto& activity : buffer_->activities) {
      logger.handleActivity(*activity);
    }
  }
  void processTrace(
      libkineto::ActivityLogger& logger,
      libkineto::getLinkedActivityCallback linked,
      int64_t,
      int64_t) override {
    for (const auto& activity : buffer_->activities) {
      activity->linked = linked(activity->id);
    }
    processTrace(logger);
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(
        libkineto::DeviceInfo{0, libkineto::kExceedMaxPid, "tpu", "tpu:0"});
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> found;
    for (const int64_t stream : streams_) {
      found.push_back({stream, stream, 0, "stream " + std::to_string(stream)});
    }
    return found;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }
  void pushCorrelationId(uint64_t id) override {
    calls.push_back(id);
  }
  void pushUserCorrelationId(uint64_t id) override {
    calls.push_back(id);
  }
  void popUserCorrelationId() override {
    popCorrelationId();
  }
  void popCorrelationId() override {
    if (!calls.empty()) { // else the call began before the profile
      calls.pop_back();
    }
  }

 private:
  // A program's own error is raised where it reads what failed; the profile says that there was
  // one.
  void run_all() {
    try {
      synchronize();
    } catch (python_error& error) {
      errors_.emplace_back(error.what());
      GilGuard gil;
      error.restore();
      interrupted_ = interrupted_ || PyErr_ExceptionMatches(PyExc_Exception) == 0;
      PyErr_Clear();
    } catch (const std::exception& error) {
      errors_.emplace_back(error.what());
    }
  }
  // Nothing may be thrown through the profiler: an interrupt comes right after it.
  void pass_interrupt_on() {
    if (std::exchange(interrupted_, false)) {
      PyErr_SetInterrupt();
    }
  }
  // An Activity of fuse/engine/profile.py. What ran on the device has a row of the host's beside
  // it, the call that had it run, from which an arrow leads to it.
  void add(PyObject* row) {
    enum : long { kKernel, kTransfer };
    const long kind = PyLong_AsLong(PyTuple_GetItem(row, 0));
    const char* name = PyUnicode_AsUTF8(PyTuple_GetItem(row, 1));
    if (kind != kKernel && kind != kTransfer) {
      on_host(row, name);
      return;
    }
    const auto flow = static_cast<uint32_t>(++flows_);
    lead(on_host(row, kind == kKernel ? "fuse: execute" : "fuse: copy"), flow, true);
    GenericTraceActivity& activity = begin(
        row, kind == kKernel ? ActivityType::CONCURRENT_KERNEL : ActivityType::GPU_MEMCPY, name);
    lead(activity, flow, false);
    PyObject* here = PyTuple_GetItem(row, 4);
    activity.resource = static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(here, 1)));
    activity.device = static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(here, 2)));
    streams_.insert(activity.resource);
    if (kind == kKernel) {
      activity.addMetadata("operations", PyLong_AsLongLong(PyTuple_GetItem(row, 5)));
      activity.addMetadata("bytes", PyLong_AsLongLong(PyTuple_GetItem(row, 6)));
      activity.addMetadataQuoted("lines", PyUnicode_AsUTF8(PyTuple_GetItem(row, 7)));
    }
  }
  GenericTraceActivity& on_host(PyObject* row, const char* name) {
    GenericTraceActivity& activity = begin(row, ActivityType::PRIVATEUSE1_RUNTIME, name);
    activity.device = static_cast<int32_t>(getpid());
    activity.resource = libkineto::systemThreadId();
    return activity;
  }
  GenericTraceActivity& begin(PyObject* row, ActivityType type, const char* name) {
    buffer_->emplace_activity(buffer_->span, type, name);
    GenericTraceActivity& activity = *buffer_->activities.back();
    activity.startTime = PyLong_AsLongLong(PyTuple_GetItem(row, 2));
    activity.endTime = PyLong_AsLongLong(PyTuple_GetItem(row, 3));
    PyObject* call = PyTuple_GetItem(PyTuple_GetItem(row, 4), 0);
    activity.id = static_cast<int32_t>(PyLong_AsLong(call));
    return activity;
  }
  static void lead(GenericTraceActivity& activity, uint32_t flow, bool start) {
    activity.flow.id = flow;
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.flow.start = start ? 1 : 0;
  }

  bool interrupted_ = false;
  uint32_t flows_ = 0;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ =
      std::make_unique<libkineto::CpuTraceBuffer>();
  std::set<int64_t> streams_;
  std::vector<std::string> errors_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "tpu";
    return name;
  }
  const std::set<ActivityType>& availableActivities() const override {
    return activities();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config&) override {
    if (types.count(ActivityType::CONCURRENT_KERNEL) == 0) {
      return nullptr; // a profile of the CPU alone
    }
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t,
      int64_t,
      const std::set<ActivityType>& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

} // namespace

} // namespace fuse

#endif
