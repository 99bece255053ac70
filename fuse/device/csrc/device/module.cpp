// The Python module fuse.device._core: the few calls that Python makes into the core.
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include "device/copier.h"
#include "device/device.h"
#include "device/exchange.h"
#include "device/generator.h"
#include "device/graphs.h"
#include "device/kernels.h"
#include "device/python_bridge.h"
#include "device/sharing.h"
#include "recorder/recorder.h"

namespace fuse {
namespace {

std::vector<std::string> strings(PyObject* sequence) {
  std::vector<std::string> result;
  PyRef fast = PyRef::steal(checked(PySequence_Fast(sequence, "a sequence of strings")));
  for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(fast.get()); ++at) {
    result.emplace_back(PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(fast.get(), at)));
  }
  return result;
}

PyObject* initialise(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  PyObject *engine = nullptr, *names = nullptr, *hidden = nullptr, *draws = nullptr;
  PyObject* composites = nullptr;
  int devices = 0;
  if (PyArg_ParseTuple(
          arguments, "OiOOOO", &engine, &devices, &names, &composites, &hidden, &draws) == 0) {
    return nullptr;
  }
  set_engine(engine);
  register_hooks(devices);
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(hidden, &position, &key, &value) != 0) {
    std::vector<int> written;
    for (Py_ssize_t at = 0; at < PyTuple_Size(value); ++at) {
      written.push_back(static_cast<int>(PyLong_AsLong(PyTuple_GetItem(value, at))));
    }
    OpInfo::declare_hidden_writes(PyUnicode_AsUTF8(key), written);
  }
  OpInfo::declare_draws(strings(draws));
  register_record_kernels(strings(names), strings(composites));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* set_mode(PyObject*, PyObject* argument) {
  HANDLE_TH_ERRORS
  auto mode = static_cast<Mode>(PyLong_AsLong(argument));
  Recorder::global().set_mode(mode);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* set_limit(PyObject*, PyObject* argument) {
  HANDLE_TH_ERRORS
  Recorder::global().set_limit(static_cast<size_t>(PyLong_AsLong(argument)));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* set_most_nodes(PyObject*, PyObject* argument) {
  HANDLE_TH_ERRORS
  Recorder::global().set_most_nodes(static_cast<size_t>(PyLong_AsLong(argument)));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* set_tier(PyObject*, PyObject* argument) {
  HANDLE_TH_ERRORS
  Recorder::global().set_tier(static_cast<tiering::Setting>(PyLong_AsLong(argument)));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* tiers(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  PyRef list = PyRef::steal(checked(PyList_New(0)));
  for (const TierReport& one : Recorder::global().tiers()) {
    PyRef item = PyRef::steal(checked(Py_BuildValue(
        "{s:K,s:s,s:s,s:(KK),s:(LL),s:I,s:(III),s:I,s:N,s:N,s:N,s:L,s:L}",
        "kind",
        static_cast<unsigned long long>(one.kind),
        "operator",
        one.name.c_str(),
        "tier",
        one.compiled ? "compiled" : "uncompiled",
        "segments",
        static_cast<unsigned long long>(one.segments[0]),
        static_cast<unsigned long long>(one.segments[1]),
        "measured_ns",
        static_cast<long long>(one.measured[0]),
        static_cast<long long>(one.measured[1]),
        "trials",
        one.trials,
        "entries",
        one.entries[0],
        one.entries[1],
        one.entries[2],
        "returning",
        one.returning,
        "tried",
        PyBool_FromLong(one.tried),
        "endless",
        PyBool_FromLong(one.endless),
        "returns",
        PyBool_FromLong(one.returns),
        "spent_ns",
        static_cast<long long>(one.spent),
        "price_ns",
        static_cast<long long>(one.price))));
    PyList_Append(list.get(), item.get());
  }
  return list.release();
  END_HANDLE_TH_ERRORS
}

PyObject* watch(PyObject*, PyObject* argument) {
  HANDLE_TH_ERRORS
  PyRef list = PyRef::steal(checked(PyList_New(0)));
  for (Ran& one : Recorder::global().watch(static_cast<tiering::Watch>(PyLong_AsLong(argument)))) {
    PyRef item = PyRef::steal(checked(Py_BuildValue(
        "(KKLO)",
        static_cast<unsigned long long>(one.kind),
        static_cast<unsigned long long>(one.calls),
        static_cast<long long>(one.took),
        one.plan.get() == nullptr ? Py_None : one.plan.get())));
    PyList_Append(list.get(), item.get());
  }
  return list.release();
  END_HANDLE_TH_ERRORS
}

PyObject* is_settled(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  return PyBool_FromLong(Recorder::global().is_settled());
  END_HANDLE_TH_ERRORS
}

PyObject* cut(PyObject*, PyObject* argument) {
  HANDLE_TH_ERRORS
  const auto reason = static_cast<CutReason>(PyLong_AsLong(argument));
  if (reason == CutReason::Synchronize) {
    Recorder::global().cut_all(reason);
  } else {
    Recorder::global().cut(reason);
  }
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* forget(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  Recorder::global().forget();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* forget_soon(PyObject*, PyObject*) {
  Recorder::global().forget_soon();
  Py_RETURN_NONE;
}

PyObject* stats(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  RecorderStats stats = Recorder::global().stats();
  PyRef cuts = PyRef::steal(checked(PyDict_New()));
  for (size_t at = 0; at < stats.cuts.size(); ++at) {
    if (stats.cuts[at] != 0) {
      PyDict_SetItemString(
          cuts.get(),
          cut_reason_name(static_cast<CutReason>(at)),
          make_int(static_cast<int64_t>(stats.cuts[at])).get());
    }
  }
  return checked(Py_BuildValue(
      "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:L,s:N}",
      "operations",
      stats.operations,
      "known_operations",
      stats.known,
      "traces",
      stats.traces,
      "uncompiled_operations",
      stats.uncompiled,
      "uncompiled_segments",
      stats.uncompiled_segments,
      "known_calls",
      stats.nodes,
      "prunes",
      stats.prunes,
      "started_early",
      stats.started_early,
      "started_in_vain",
      stats.started_in_vain,
      "streams",
      static_cast<unsigned long long>(Streams::global().all().size()),
      "copies_beside",
      static_cast<long long>(Copier::global().started()),
      "cuts",
      cuts.release()));
  END_HANDLE_TH_ERRORS
}

PyObject* reset_stats(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  Recorder::global().reset_stats();
  Copier::global().reset();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* memory(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  MemoryStats stats = memory_stats();
  return checked(Py_BuildValue("(LLL)", stats.allocated, stats.peak, stats.storages));
  END_HANDLE_TH_ERRORS
}

PyObject* reset_peak(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  reset_peak_memory();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* set_bounds(PyObject*, PyObject* arguments) {
  long long largest = 0, all = 0;
  if (PyArg_ParseTuple(arguments, "LL", &largest, &all) == 0) {
    return nullptr;
  }
  set_memory_bounds(largest, all);
  Py_RETURN_NONE;
}

// Calls `self`, whatever the arguments, without running a line of Python where it does not.
PyObject* call_plainly(PyObject* self, PyObject*) {
  return PyObject_CallNoArgs(self);
}

PyObject* without_arguments(PyObject*, PyObject* function) {
  static PyMethodDef plainly{
      "call_plainly", call_plainly, METH_VARARGS, "Calls a function without its arguments."};
  return PyCFunction_New(&plainly, function);
}

PyObject* get_device(PyObject*, PyObject*) {
  return PyLong_FromLong(current_device());
}

PyObject* get_generator(PyObject*, PyObject* argument) {
  HANDLE_TH_ERRORS
  return checked(
      THPGenerator_Wrap(default_generator(static_cast<c10::DeviceIndex>(PyLong_AsLong(argument)))));
  END_HANDLE_TH_ERRORS
}

PyObject* set_device(PyObject*, PyObject* argument) {
  HANDLE_TH_ERRORS
  set_current_device(static_cast<c10::DeviceIndex>(PyLong_AsLong(argument)));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* wait(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  synchronize();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* share(PyObject*, PyObject* tensor) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(THPVariable_Check(tensor), "share takes a tensor");
  return share_array(THPVariable_Unpack(tensor)).release();
  END_HANDLE_TH_ERRORS
}

PyObject* adopt(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  PyObject *array = nullptr, *dtype = nullptr, *shape = nullptr;
  int device = 0;
  if (PyArg_ParseTuple(arguments, "OOO!i", &array, &dtype, &PyTuple_Type, &shape, &device) == 0) {
    return nullptr;
  }
  TORCH_CHECK(THPDtype_Check(dtype), "adopt takes a dtype");
  std::vector<int64_t> sizes;
  for (Py_ssize_t at = 0; at < PyTuple_Size(shape); ++at) {
    sizes.push_back(PyLong_AsLongLong(PyTuple_GetItem(shape, at)));
  }
  const auto type = reinterpret_cast<THPDtype*>(dtype)->scalar_type;
  return THPVariable_Wrap(adopt_array(array, type, sizes, static_cast<int8_t>(device)));
  END_HANDLE_TH_ERRORS
}

PyObject* refuse_with_texts(PyObject*, PyObject* arguments) {
  PyObject* type = nullptr;
  const char *forked = nullptr, *ending = nullptr;
  if (PyArg_ParseTuple(arguments, "Oss", &type, &forked, &ending) == 0) {
    return nullptr;
  }
  refuse_with(type, forked, ending);
  watch_forks();
  Py_RETURN_NONE;
}

PyObject* shut_down(PyObject*, PyObject* unfinished) {
  begin_to_close();
  {
    const GilRelease released; // which a thread inside the recorder may need
    Recorder::global().wait_until_left();
  }
  begin_end(unfinished == Py_True || !Copier::global().idle());
  Py_RETURN_NONE;
}

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"initialise", initialise, METH_VARARGS, "Register kernels and hooks; takes the engine."},
    {"set_mode", set_mode, METH_O, "0 debug, 1 strict, 2 fused; cuts first."},
    {"set_limit", set_limit, METH_O, "Operations after which a trace is cut."},
    {"set_most_nodes", set_most_nodes, METH_O, "Calls that the trie of known streams may hold."},
    {"set_tier", set_tier, METH_O, "How tiers are chosen: 0 auto, 1 compiled, 2 uncompiled."},
    {"tiers", tiers, METH_NOARGS, "What the policy of tiers knows, a dictionary a kind."},
    {"watch",
     watch,
     METH_O,
     "Whether somebody looks on: 0 no, 1 and all is recorded, 2 as it is; returns what ran."},
    {"is_settled", is_settled, METH_NOARGS, "Whether nothing is being tried or compiled."},
    {"cut", cut, METH_O, "Cut with the reason of this number; every stream to synchronise."},
    {"graph", make_graph, METH_O, "A compiled graph; takes whether its calls stand alone."},
    {"replay", fast(replay_graph), METH_FASTCALL, "Record a graph that is known here, or None."},
    {"begin_capture", fast(begin_capture), METH_FASTCALL, "What follows is a graph's."},
    {"end_capture", fast(end_capture), METH_FASTCALL, "It ends: keep it, or say why not."},
    {"forget", forget, METH_NOARGS, "Drop every known stream."},
    {"forget_soon", forget_soon, METH_NOARGS, "Drop them where the next trace begins."},
    {"stats", stats, METH_NOARGS, "Counters of the recorder."},
    {"reset_stats", reset_stats, METH_NOARGS, "Set the counters to zero."},
    {"memory", memory, METH_NOARGS, "Bytes allocated, their peak, and storages alive."},
    {"reset_peak", reset_peak, METH_NOARGS, "Start the peak from the present."},
    {"set_memory_bounds",
     set_bounds,
     METH_VARARGS,
     "Bytes that one value may have, and all together; 0: the device says when it is full."},
    {"without_arguments",
     without_arguments,
     METH_O,
     "What calls a function and drops the arguments, not itself a function of Python's."},
    {"get_device", get_device, METH_NOARGS, "The current device's index."},
    {"default_generator", get_generator, METH_O, "A device's default torch.Generator."},
    {"set_device", set_device, METH_O, "Make a device current."},
    {"synchronize", wait, METH_NOARGS, "Cut and wait for the device."},
    {"share", share, METH_O, "The backend's array of a whole tensor, kept from donation; or None."},
    {"adopt", adopt, METH_VARARGS, "A tensor of an array, from dtype, shape and device index."},
    {"refuse_with", refuse_with_texts, METH_VARARGS, "The error in a forked child and at the end."},
    {"shut_down", shut_down, METH_O, "The end begins; takes whether work is unfinished."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_core",
    "Native core of fuse.",
    -1,
    methods,
    nullptr,
    nullptr,
    nullptr,
    nullptr};

} // namespace
} // namespace fuse

PyMODINIT_FUNC PyInit__core() {
  PyObject* module = PyModule_Create(&fuse::definition);
  if (module == nullptr) {
    return nullptr;
  }
  auto* table = const_cast<fuse::DeviceValues*>(&fuse::device_values()); // capsules hold void*
  PyObject* values = PyCapsule_New(table, fuse::DeviceValues::kName, nullptr);
  if (values == nullptr || PyModule_AddObject(module, "values", values) != 0) {
    Py_XDECREF(values);
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
