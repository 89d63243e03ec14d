#include "server/daemon/config_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "server/daemon/config_fields.h"
#include "server/daemon/config_proto_text.h"
#include "server/daemon/exit_codes.h"

namespace odb {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kIndent = 6;

constexpr char kHead[] =
    "odbd serves training data to the ranks of a torchrun job on this machine.\n"
    "\n"
    "  odbd --data FILE [--tokenizer tokenizer.json] [--FIELD VALUE ...]\n"
    "  odbd --config FILE\n"
    "\n"
    "Every field below is a flag (--token-budget 8192), an environment variable\n"
    "(ODB_TOKEN_BUDGET=8192) and a key of the YAML file (token_budget: 8192).\n"
    "A flag wins over a variable, a variable over the file, the file over the\n"
    "default. ODB_DATA takes several files separated by ':'; --views,\n"
    "--extra-tensors and --streams, and their variables, take YAML.\n"
    "\n"
    "Commands\n"
    "  --config FILE   read this YAML file (else $ODB_CONFIG)\n"
    "  --print-config  print every value and where it came from, and exit\n"
    "  --check-config  read everything, open data and tokenizer, say OK, and exit\n"
    "  --ready-fd N    write \"ready\" to descriptor N once sessions are accepted\n"
    "  -h, --help      this text\n"
    "  -V, --version   the version\n";

// Breaks `text` at blanks, each line indented.
std::string Wrapped(absl::string_view text) {
  std::string result;
  std::string line(kIndent, ' ');
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const bool first = line.size() == kIndent;
    if (!first && line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&result, line, "\n");
      line.assign(kIndent, ' ');
    } else if (!first) {
      line += ' ';
    }
    absl::StrAppend(&line, word);
  }
  if (line.size() > kIndent) absl::StrAppend(&result, line, "\n");
  return result;
}

// "optional int64 token_budget = 40;" -> "token_budget"; empty if the line declares no field.
std::string DeclaredField(absl::string_view line) {
  if (!absl::StartsWith(line, "optional ") && !absl::StartsWith(line, "repeated ")) return "";
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  return words.size() > 2 ? std::string(words[2]) : "";
}

std::string YamlScalar(const FieldSpec& spec, const std::string& text) {
  if (spec.kind != FieldKind::kText) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

}  // namespace

std::vector<FieldDoc> ConfigDocs() {
  std::vector<FieldDoc> docs;
  std::string group;
  std::string comment;
  bool in_config = false;
  for (absl::string_view raw : absl::StrSplit(kConfigProtoText, '\n')) {
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (absl::StartsWith(line, "message ")) in_config = line == "message Config {";
    if (!in_config) continue;
    if (absl::StartsWith(line, "// --- ")) {
      group = std::string(line.substr(7, line.find(" -", 7) - 7));
      comment.clear();
    } else if (absl::StartsWith(line, "// ")) {
      absl::StrAppend(&comment, comment.empty() ? "" : " ", line.substr(3));
    } else if (const std::string field = DeclaredField(line); !field.empty()) {
      docs.push_back({field, group, comment});
      comment.clear();
    }
  }
  return docs;
}

std::string HelpText() {
  std::string text = kHead;
  std::string group;
  for (const FieldDoc& doc : ConfigDocs()) {
    if (doc.group != group) {
      group = doc.group;
      absl::StrAppend(&text, "\n", group, "\n");
    }
    const FieldSpec* spec = FindConfigField(doc.name);
    std::string line = absl::StrCat("  --", absl::StrReplaceAll(doc.name, {{"_", "-"}}));
    if (spec != nullptr && spec->default_text != nullptr) {
      absl::StrAppend(&line, "  [", spec->default_text, "]");
    }
    absl::StrAppend(&text, line, "\n", Wrapped(doc.comment));
  }
  absl::StrAppend(&text, "\nExit codes\n", kExitCodesText);
  return text;
}

std::string ConfigAsYaml(const LoadedConfig& config) {
  std::vector<std::pair<std::string, std::string>> lines;  // "key: value", origin
  size_t width = 0;
  for (const FieldSpec& spec : ConfigFields()) {
    std::string value = YamlScalar(spec, FieldToText(spec, config.values));
    if (absl::string_view(spec.name) == "job_token" && !config.values.job_token().empty()) {
      value = "\"***\"";
    }
    lines.emplace_back(absl::StrCat(spec.name, ": ", value), config.origins.at(spec.name));
    width = std::max(width, std::min(lines.back().first.size(), size_t{40}));
  }
  std::string text;
  for (const auto& [line, origin] : lines) {
    const size_t pad = line.size() < width ? width - line.size() : 0;
    absl::StrAppend(&text, line, std::string(pad, ' '), "  # ", origin, "\n");
  }
  return text;
}

}  // namespace odb
