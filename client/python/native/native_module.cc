// odbd._native: the way from a step to torch tensors without ctypes, which costs a Python trainer
// more than everything else that its loader does (docs/benchmarks.md). Only calls of Python's
// stable ABI.
//
//   bind(odb_client_next, odb_step_describe, odb_step_sample_ids, odb_step_release)   once,
//   addresses take(client, timeout_ms, batch, from_dlpack)   waits for a step, without the
//   interpreter's lock view(step, batch, from_dlpack)                 takes over a step that is
//   there
//
// Both put the step's tensors into the dict `batch`, as views of its memory, and return
// (info, ids, idle, bools): odb_step_info and the odb_sample_ids as bytes, and the names of the
// tensors that are uint8 now and bool in truth, which DLPack long had no word for. take returns the
// code instead, an int, if no step came.
//
// Memory: every tensor holds the step, by DLPack's deleter, which may run in any thread and without
// the interpreter's lock; the last one returns it. Errors: ValueError for a tensor of unknown type,
// and what from_dlpack raises; the step goes back then.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03080000  // 3.8 and all after it
#include <Python.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "client/c_api/odb_client.h"

namespace {

// DLPack's structures (dmlc/dlpack, dlpack.h, before version 1), which are its interface.
enum : int32_t { kDlCpu = 1 };
enum : uint8_t { kDlInt = 0, kDlUint = 1, kDlFloat = 2, kDlBfloat = 4 };
struct DlTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // null: row-major
  uint64_t byte_offset;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor* self);
};
constexpr char kDlName[] = "dltensor";  // of a capsule that nobody has taken yet

struct Functions {
  decltype(&odb_client_next) next;
  decltype(&odb_step_describe) describe;
  decltype(&odb_step_sample_ids) sample_ids;
  decltype(&odb_step_release) release;
};
Functions functions = {};  // of bind; constant after it

struct StepReleaser {
  void operator()(odb_step* step) const { functions.release(step); }
};
using StepHolder = std::shared_ptr<odb_step>;

// What a capsule points to: the tensor, its shape, and the step that it lies in.
struct Export {
  DlManagedTensor managed = {};
  std::vector<int64_t> shape;
  StepHolder step;  // null: it has no bytes
};

void Delete(DlManagedTensor* managed) { delete static_cast<Export*>(managed->context); }

// Of a capsule: whoever takes the tensor renames it.
void DeleteUntaken(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kDlName) == 0) return;
  Delete(static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule, kDlName)));
}

struct ObjectReleaser {
  void operator()(PyObject* object) const { Py_DecRef(object); }
};
using Object = std::unique_ptr<PyObject, ObjectReleaser>;

// False: unknown.
bool SetType(int32_t dtype, DlTensor* tensor) {
  struct Type {
    int32_t dtype;
    uint8_t code;
    uint8_t bits;
  };
  static constexpr Type kTypes[] = {{ODB_INT64, kDlInt, 64},     {ODB_INT32, kDlInt, 32},
                                    {ODB_BOOL, kDlUint, 8},      {ODB_UINT8, kDlUint, 8},
                                    {ODB_FLOAT32, kDlFloat, 32}, {ODB_FLOAT64, kDlFloat, 64},
                                    {ODB_FLOAT16, kDlFloat, 16}, {ODB_BFLOAT16, kDlBfloat, 16}};
  for (const Type& type : kTypes) {
    if (type.dtype != dtype) continue;
    tensor->code = type.code;
    tensor->bits = type.bits;
    return true;
  }
  return false;
}

// A capsule with a view of `tensor`. Null with an exception set.
Object Wrap(const odb_tensor& tensor, const StepHolder& step) {
  alignas(64) static char nothing[64];  // where tensors without bytes lie
  auto exported = std::make_unique<Export>();
  DlManagedTensor& managed = exported->managed;
  if (!SetType(tensor.dtype, &managed.tensor)) {
    PyErr_Format(PyExc_ValueError, "tensor %s has the unknown type %d", tensor.name,
                 static_cast<int>(tensor.dtype));
    return nullptr;
  }
  exported->shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  if (tensor.bytes > 0) exported->step = step;
  managed.tensor.data = tensor.bytes > 0 ? tensor.data : nothing;
  managed.tensor.device_type = kDlCpu;
  managed.tensor.ndim = tensor.ndim;
  managed.tensor.lanes = 1;
  managed.tensor.shape = exported->shape.data();
  managed.context = exported.get();
  managed.deleter = Delete;
  Object capsule(PyCapsule_New(&managed, kDlName, DeleteUntaken));
  if (capsule != nullptr) static_cast<void>(exported.release());  // the capsule's now
  return capsule;
}

// Puts a view of `tensor` into `batch`, and its name into `bools` if it is one. False with an
// exception set.
bool Put(const odb_tensor& tensor, const StepHolder& step, PyObject* batch, PyObject* from_dlpack,
         Object* bools) {
  const Object capsule = Wrap(tensor, step);
  if (capsule == nullptr) return false;
  const Object view(PyObject_CallFunctionObjArgs(from_dlpack, capsule.get(), nullptr));
  if (view == nullptr) return false;
  const Object name(PyUnicode_InternFromString(tensor.name));
  if (name == nullptr || PyObject_SetItem(batch, name.get(), view.get()) != 0) return false;
  if (tensor.dtype != ODB_BOOL) return true;
  if (*bools == nullptr) bools->reset(PyList_New(0));
  return *bools != nullptr && PyList_Append(bools->get(), name.get()) == 0;
}

// Takes the step over.
PyObject* Unpack(odb_step* taken, PyObject* batch, PyObject* from_dlpack) {
  const StepHolder step(taken, StepReleaser());
  constexpr int32_t kUsual = 16;
  odb_step_info info = {};
  odb_tensor usual[kUsual];
  std::vector<odb_tensor> many;
  odb_tensor* tensors = usual;
  functions.describe(taken, &info, sizeof info, usual, kUsual, sizeof(odb_tensor), nullptr, 0);
  if (info.num_tensors > kUsual) {
    many.resize(static_cast<size_t>(info.num_tensors));
    tensors = many.data();
    functions.describe(taken, &info, sizeof info, tensors, info.num_tensors, sizeof(odb_tensor),
                       nullptr, 0);
  }
  Object bools;
  for (int32_t i = 0; i < info.num_tensors; ++i) {
    if (!Put(tensors[i], step, batch, from_dlpack, &bools)) return nullptr;
  }
  const auto bytes = static_cast<Py_ssize_t>(sizeof(odb_sample_id)) * info.num_samples;
  const Object ids(PyBytes_FromStringAndSize(nullptr, bytes));
  if (ids == nullptr) return nullptr;
  functions.sample_ids(taken, reinterpret_cast<odb_sample_id*>(PyBytes_AsString(ids.get())),
                       info.num_samples);
  return Py_BuildValue(
      "y#OOO", reinterpret_cast<const char*>(&info), static_cast<Py_ssize_t>(sizeof info),
      ids.get(), info.idle != 0 ? Py_True : Py_False, bools == nullptr ? Py_None : bools.get());
}

// False with an exception set.
bool CheckBound() {
  if (functions.release != nullptr) return true;
  PyErr_SetString(PyExc_RuntimeError, "bind was not called");
  return false;
}

PyObject* Bind(PyObject* /*module*/, PyObject* arguments) {
  uint64_t at[4] = {};
  if (PyArg_ParseTuple(arguments, "KKKK", &at[0], &at[1], &at[2], &at[3]) == 0) return nullptr;
  Functions bound = {};
  static_assert(sizeof bound == sizeof at);
  std::memcpy(&bound, at, sizeof bound);
  functions = bound;
  Py_IncRef(Py_None);
  return Py_None;
}

PyObject* Take(PyObject* /*module*/, PyObject* arguments) {
  uint64_t client = 0;
  int64_t timeout_ms = 0;
  PyObject* batch = nullptr;
  PyObject* from_dlpack = nullptr;
  if (PyArg_ParseTuple(arguments, "KLOO", &client, &timeout_ms, &batch, &from_dlpack) == 0 ||
      !CheckBound()) {
    return nullptr;
  }
  odb_step* step = nullptr;
  PyThreadState* const interpreter = PyEval_SaveThread();
  const int code = functions.next(reinterpret_cast<odb_client*>(client), timeout_ms, &step);
  PyEval_RestoreThread(interpreter);
  if (code != ODB_OK) return PyLong_FromLong(code);
  return Unpack(step, batch, from_dlpack);
}

PyObject* View(PyObject* /*module*/, PyObject* arguments) {
  uint64_t step = 0;
  PyObject* batch = nullptr;
  PyObject* from_dlpack = nullptr;
  if (PyArg_ParseTuple(arguments, "KOO", &step, &batch, &from_dlpack) == 0 || !CheckBound()) {
    return nullptr;
  }
  return Unpack(reinterpret_cast<odb_step*>(step), batch, from_dlpack);
}

PyMethodDef methods[] = {{"bind", Bind, METH_VARARGS, nullptr},
                         {"take", Take, METH_VARARGS, nullptr},
                         {"view", View, METH_VARARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&module); }
