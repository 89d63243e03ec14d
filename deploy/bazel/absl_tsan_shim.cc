// Debian's Abseil is not instrumented, so ThreadSanitizer does not see the
// happens-before of absl::Mutex and absl::CondVar (used by gRPC too). Linked
// into test binaries under --config=tsan, this file interposes the exported
// functions of libabsl_synchronization and tells TSAN about each of them.
#include <dlfcn.h>
extern "C" {
void __tsan_acquire(void*);
void __tsan_release(void*);
}
namespace {
template <typename F>
F Next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
}  // namespace
#define NS "_ZN4absl7debian3"
#define ACQ(id, sym)                                                                   \
  extern "C" __attribute__((no_sanitize("thread"))) void id(void* mu) __asm__(NS sym); \
  void id(void* mu) {                                                                  \
    static auto f = Next<void (*)(void*)>(NS sym);                                     \
    f(mu);                                                                             \
    __tsan_acquire(mu);                                                                \
  }
#define REL(id, sym)                                                                   \
  extern "C" __attribute__((no_sanitize("thread"))) void id(void* mu) __asm__(NS sym); \
  void id(void* mu) {                                                                  \
    static auto f = Next<void (*)(void*)>(NS sym);                                     \
    __tsan_release(mu);                                                                \
    f(mu);                                                                             \
  }
#define TRY(id, sym)                                                                   \
  extern "C" __attribute__((no_sanitize("thread"))) bool id(void* mu) __asm__(NS sym); \
  bool id(void* mu) {                                                                  \
    static auto f = Next<bool (*)(void*)>(NS sym);                                     \
    bool r = f(mu);                                                                    \
    if (r) __tsan_acquire(mu);                                                         \
    return r;                                                                          \
  }
ACQ(shim_lock, "5Mutex4LockEv")
ACQ(shim_rlock, "5Mutex10ReaderLockEv")
REL(shim_unlock, "5Mutex6UnlockEv")
REL(shim_runlock, "5Mutex12ReaderUnlockEv")
TRY(shim_try, "5Mutex7TryLockEv")
TRY(shim_rtry, "5Mutex13ReaderTryLockEv")
#define MU1(id, sym)                                                                            \
  extern "C" __attribute__((no_sanitize("thread"))) void id(void* mu, void* a) __asm__(NS sym); \
  void id(void* mu, void* a) {                                                                  \
    static auto f = Next<void (*)(void*, void*)>(NS sym);                                       \
    __tsan_release(mu);                                                                         \
    f(mu, a);                                                                                   \
    __tsan_acquire(mu);                                                                         \
  }
MU1(shim_await, "5Mutex5AwaitERKNS0_9ConditionE")
MU1(shim_lockwhen, "5Mutex8LockWhenERKNS0_9ConditionE")
MU1(shim_rlockwhen, "5Mutex14ReaderLockWhenERKNS0_9ConditionE")
// absl::Duration and absl::Time are 12 bytes, passed in two registers
struct D {
  long hi;
  unsigned lo;
};
#define MU2(id, sym)                                                              \
  extern "C" __attribute__((no_sanitize("thread"))) bool id(void* mu, void* a,    \
                                                            D d) __asm__(NS sym); \
  bool id(void* mu, void* a, D d) {                                               \
    static auto f = Next<bool (*)(void*, void*, D)>(NS sym);                      \
    __tsan_release(mu);                                                           \
    bool r = f(mu, a, d);                                                         \
    __tsan_acquire(mu);                                                           \
    return r;                                                                     \
  }
MU2(shim_awaitd, "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE")
MU2(shim_awaitt, "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE")
MU2(shim_lwt, "5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE")
MU2(shim_lwd, "5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE")
// CondVar: the mutex is the second argument
extern "C" void shim_cvwait(void* cv, void* mu) __asm__(NS "7CondVar4WaitEPNS0_5MutexE");
void shim_cvwait(void* cv, void* mu) {
  static auto f = Next<void (*)(void*, void*)>(NS "7CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mu);
  f(cv, mu);
  __tsan_acquire(mu);
}
#define CVT(id, sym)                                           \
  extern "C" bool id(void* cv, void* mu, D d) __asm__(NS sym); \
  bool id(void* cv, void* mu, D d) {                           \
    static auto f = Next<bool (*)(void*, void*, D)>(NS sym);   \
    __tsan_release(mu);                                        \
    bool r = f(cv, mu, d);                                     \
    __tsan_acquire(mu);                                        \
    return r;                                                  \
  }
CVT(shim_cvt, "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE")
CVT(shim_cvd, "7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE")
