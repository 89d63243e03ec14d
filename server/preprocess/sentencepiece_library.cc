#include "server/preprocess/sentencepiece_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/preprocess/sentencepiece_shim.h"

namespace odb {
namespace {

constexpr char kFile[] = "libodb_sentencepiece.so";

struct Functions {
  decltype(&odb_pieces_open) open = nullptr;
  decltype(&odb_pieces_close) close = nullptr;
  decltype(&odb_pieces_pad_id) pad_id = nullptr;
  decltype(&odb_pieces_unk_id) unk_id = nullptr;
  decltype(&odb_pieces_encode) encode = nullptr;
};

std::string OwnFolder() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, size < 0 ? 0 : static_cast<size_t>(size));
  return self.substr(0, self.rfind('/') + 1);
}

// Its own symbols before everybody else's, and for nobody else.
absl::StatusOr<void*> OpenLibrary() {
  const std::string folder = OwnFolder();
  for (const char* place : {"", "../lib/", "../preprocess/"}) {
    const std::string path = absl::StrCat(folder, place, kFile);
    if (::access(path.c_str(), F_OK) != 0) continue;
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library != nullptr) return library;
    return absl::FailedPreconditionError(absl::StrCat("SentencePiece: ", ::dlerror()));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("SentencePiece: there is no ", kFile, " in ", folder, " or ", folder, "../lib"));
}

template <typename F>
absl::Status Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(::dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("SentencePiece: ", kFile, " has no ", name, ": it is of another build"));
}

absl::StatusOr<Functions> LoadFunctions() {
  ASSIGN_OR_RETURN(void* const library, OpenLibrary());
  Functions functions;
  RETURN_IF_ERROR(Find(library, "odb_pieces_open", &functions.open));
  RETURN_IF_ERROR(Find(library, "odb_pieces_close", &functions.close));
  RETURN_IF_ERROR(Find(library, "odb_pieces_pad_id", &functions.pad_id));
  RETURN_IF_ERROR(Find(library, "odb_pieces_unk_id", &functions.unk_id));
  RETURN_IF_ERROR(Find(library, "odb_pieces_encode", &functions.encode));
  return functions;
}

class LoadedPieces final : public SentencePieces {
 public:
  LoadedPieces(const Functions& functions, OdbPieces* pieces)
      : functions_(functions), pieces_(pieces) {}
  ~LoadedPieces() override { functions_.close(pieces_); }
  LoadedPieces(const LoadedPieces&) = delete;
  LoadedPieces& operator=(const LoadedPieces&) = delete;

  void Encode(absl::string_view text, std::vector<int32_t>* out) const override {
    const auto append = [](void* context, const int32_t* ids, size_t count) {
      auto* const all = static_cast<std::vector<int32_t>*>(context);
      all->insert(all->end(), ids, ids + count);
    };
    const int failed = functions_.encode(pieces_, text.data(), text.size(), append, out);
    // Of the models that CheckSupported lets through there is none that can leave text over.
    INVARIANT(failed == 0, "SentencePiece cannot encode a text");
  }

  int32_t pad_id() const override { return functions_.pad_id(pieces_); }
  int32_t unk_id() const override { return functions_.unk_id(pieces_); }

 private:
  const Functions functions_;
  OdbPieces* const pieces_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const SentencePieces>> SentencePieces::Open(
    absl::string_view model) {
  ASSIGN_OR_RETURN(const Functions functions, LoadFunctions());
  char error[256] = "";
  OdbPieces* const pieces = functions.open(model.data(), model.size(), error, sizeof error);
  if (pieces == nullptr) return absl::InvalidArgumentError(absl::StrCat("SentencePiece: ", error));
  return std::make_unique<const LoadedPieces>(functions, pieces);
}

}  // namespace odb
