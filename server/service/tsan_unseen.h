#pragma once

#ifdef __SANITIZE_THREAD__
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace odb {

// Keeps what a thread does in a scope from ThreadSanitizer; nothing in other builds.
//
// For the few calls that hand an operation to gRPC's callback interface from a thread of our own:
// templates in gRPC's headers, compiled with us, fill the operation in on this thread and read it
// on one of gRPC's. The order between the two is kept inside Debian's libgrpc, which is not
// instrumented, so every such call would be reported. A suppression by name would hide our own
// handlers as well, since they are called from the same templates.
class TsanUnseen {
 public:
#ifdef __SANITIZE_THREAD__
  TsanUnseen() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~TsanUnseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  TsanUnseen() {}
#endif
  TsanUnseen(const TsanUnseen&) = delete;
  TsanUnseen& operator=(const TsanUnseen&) = delete;
};

}  // namespace odb
