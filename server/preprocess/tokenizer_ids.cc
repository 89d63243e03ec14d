// Ids of texts, for tests that compare them with another library's.
//
//   tokenizer_ids FILE    reads "SIZE MARKUP\n" and SIZE bytes, again and again; MARKUP is 0, 1 or
//   2
//                         as in MarkupTokens. Prints the ids of each in a line.
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "server/preprocess/tokenizer_file.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tokenizer_ids FILE\n");
    return 64;
  }
  const auto tokenizer = odb::LoadTokenizerFile(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", std::string(tokenizer.status().message()).c_str());
    return 65;
  }
  size_t size = 0;
  int markup = 0;
  while (std::cin >> size >> markup && std::cin.get() == '\n') {
    std::string text(size, '\0');
    std::cin.read(text.data(), static_cast<std::streamsize>(size));
    std::vector<int32_t> ids;
    (*tokenizer)->Encode(text, static_cast<odb::MarkupTokens>(markup), &ids);
    std::cout << absl::StrJoin(ids, " ") << "\n";
  }
  return 0;
}
