#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "server/sources/indexed_corpus.h"
#include "server/sources/scratch_file.h"

namespace odb {

// The two files of an indexed corpus for one test. For tests only.
template <typename T>
class CorpusFiles {
 public:
  CorpusFiles(uint8_t type_code, const std::vector<std::vector<T>>& sequences)
      : index_("corpus.idx", Index(type_code, sequences)),
        data_path_(CorpusDataPath(index_.path())) {
    std::ofstream(data_path_, std::ios::binary) << Data(sequences);
  }
  ~CorpusFiles() { std::remove(data_path_.c_str()); }

  const std::string& index_path() const { return index_.path(); }
  const std::string& data_path() const { return data_path_; }

  static std::string Data(const std::vector<std::vector<T>>& sequences) {
    std::string bytes;
    for (const std::vector<T>& sequence : sequences) {
      for (const T id : sequence) Append(id, &bytes);
    }
    return bytes;
  }
  static std::string Index(uint8_t type_code, const std::vector<std::vector<T>>& sequences) {
    std::string bytes("MMIDIDX\0\0", 9);
    Append(uint64_t{1}, &bytes);
    Append(type_code, &bytes);
    Append(static_cast<uint64_t>(sequences.size()), &bytes);
    Append(uint64_t{2}, &bytes);  // one document: the sequences from 0 to the last
    for (const auto& sequence : sequences) Append(static_cast<int32_t>(sequence.size()), &bytes);
    int64_t offset = 0;
    for (const auto& sequence : sequences) {
      Append(offset, &bytes);
      offset += static_cast<int64_t>(sequence.size() * sizeof(T));
    }
    Append(int64_t{0}, &bytes);
    Append(static_cast<int64_t>(sequences.size()), &bytes);
    return bytes;
  }

 private:
  template <typename V>
  static void Append(V value, std::string* bytes) {
    bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  const ScratchFile index_;
  const std::string data_path_;
};

}  // namespace odb
