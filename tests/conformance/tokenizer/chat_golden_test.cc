// ChatML text, token ids and labels against those of the models' own templates (rendered with
// Jinja) and of LLaMA-Factory, where the same rule applies. Where one does not, the case is named.
#include <simdjson.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/preprocess/bpe_tokenizer.h"
#include "server/preprocess/chatml.h"
#include "server/preprocess/conversation_parser.h"
#include "server/preprocess/sample.h"
#include "shared_data.h"

namespace odb {
namespace {

namespace dom = simdjson::dom;

constexpr char kQwenSystem[] =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

bool Skipped() {
  if (!std::string(ODB_SHARED_DATA_DIR).empty()) return false;
  std::cout << "SKIPPED: no shared data (set ODB_CONFORMANCE_DIR)" << std::endl;
  return true;
}

void ForEachLine(const std::string& name, const std::function<void(dom::element)>& visit) {
  std::ifstream file(std::string(ODB_SHARED_DATA_DIR) + "/conformance/" + name);
  REQUIRE(file.good());
  dom::parser parser;
  for (std::string line; std::getline(file, line);) visit(parser.parse(line));
}

std::string Text(dom::element object, const char* key) {
  std::string_view text;
  return object[key].get(text) == simdjson::SUCCESS ? std::string(text) : "";
}

// A record with the line's messages, tools and system text, as a user would have it.
std::vector<ChatSegment> Render(dom::element line, const std::string& default_system) {
  std::string record = "{\"messages\": ";
  AppendCanonicalJson(line["messages"], &record);
  dom::element tools;
  if (line["tools"].get(tools) == simdjson::SUCCESS) {
    record += ", \"tools\": ";
    AppendCanonicalJson(tools, &record);
  }
  record += ", \"system\": \"" + Text(line, "system") + "\"}";
  // LLaMA-Factory calls the turn with a call "function", as odbd calls an old form of the result.
  record = absl::StrReplaceAll(record, {{"\"role\": \"function\"", "\"role\": \"function_call\""}});
  dom::parser parser, nested;
  Conversation conversation;
  const auto rejection = ParseConversation(dom::object(parser.parse(record)),
                                           ConversationFormat::kAuto, &nested, &conversation);
  INFO((rejection ? rejection->detail : ""));
  REQUIRE_FALSE(rejection.has_value());
  return RenderChatml(conversation, default_system);
}

void Report(const char* what, size_t num_equal, size_t num_compared) {
  std::cout << what << ": " << num_equal << " of " << num_compared << " cases compared, "
            << (num_equal == num_compared ? "equal" : "DIFFERENT") << std::endl;
}

std::string Joined(const std::vector<ChatSegment>& segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.text;
  return text;
}

TEST_CASE("The text of a conversation is that of the model's own template",
          "[conformance][chatml]") {
  if (Skipped()) return;
  // Not among them: templates that strip turns (chatml: multi), put an empty <think> before answers
  // without reasoning (qwen3, qwen3_training), leave the answer open (genprompt), or read pictures;
  // and chat-008, whose text has an argument 3.0 that its messages write as 3.
  const std::set<std::string> comparable = {"chat-001", "chat-003", "chat-004", "chat-006",
                                            "chat-009", "chat-010", "chat-012", "chat-013",
                                            "chat-019", "chat-022", "chat-029"};
  size_t num_equal = 0;
  ForEachLine("chat_template_golden.jsonl", [&](dom::element line) {
    const std::string id = Text(line, "id");
    if (comparable.count(id) == 0) return;
    INFO(id);
    const bool qwen2 = absl::StartsWith(Text(line, "template"), "qwen2_5");
    const std::string text = Joined(Render(line, qwen2 ? kQwenSystem : ""));
    CHECK(text == Text(line, "text"));
    num_equal += text == Text(line, "text");
  });
  Report("chat template", num_equal, comparable.size());
  CHECK(num_equal == comparable.size());
}

// Text and whether it is trained, neighbours of the same kind joined. LLaMA-Factory trains the line
// break behind <|im_end|> too; it is taken out of theirs here.
std::vector<std::pair<std::string, bool>> Segments(dom::element line) {
  std::vector<std::pair<std::string, bool>> out;
  bool owes_break = false;
  for (const dom::element entry : dom::array(line["segments"])) {
    std::string text(std::string_view(entry.at(0)));
    const bool trained = entry.at(1);
    if (owes_break) text = "\n" + text;
    owes_break = trained && absl::EndsWith(text, "<|im_end|>\n");
    if (owes_break) text.pop_back();
    out.emplace_back(text, trained);
  }
  if (owes_break) out.emplace_back("\n", false);
  return out;
}

TEST_CASE("What counts in the loss is what LLaMA-Factory trains, but for the last line break",
          "[conformance][chatml]") {
  if (Skipped()) return;
  size_t num_equal = 0, num_compared = 0;
  ForEachLine("label_mask_llamafactory_golden.jsonl", [&](dom::element line) {
    const std::string name = Text(line, "template");
    if (name != "qwen" && name != "chatml") return;
    ++num_compared;
    INFO(Text(line, "id"));
    std::vector<std::pair<std::string, bool>> ours;
    for (const ChatSegment& segment : Render(line, name == "qwen" ? kQwenSystem : "")) {
      if (ours.empty() || ours.back().second != segment.in_loss) {
        ours.emplace_back("", segment.in_loss);
      }
      ours.back().first += segment.text;
    }
    const bool equal = ours == Segments(line);
    CHECK(equal);
    num_equal += equal;
  });
  Report("label masks", num_equal, num_compared);
  CHECK(num_compared == 5);
}

std::vector<int32_t> Ids(dom::element line, const char* key) {
  std::vector<int32_t> ids;
  for (const dom::element id : dom::array(line[key])) {
    ids.push_back(static_cast<int32_t>(int64_t{id}));
  }
  return ids;
}

TEST_CASE("Ids and labels are LLaMA-Factory's, but for the last line break",
          "[conformance][chatml]") {
  if (Skipped()) return;
  const auto tokenizer =
      LoadBpeTokenizer(std::string(ODB_SHARED_DATA_DIR) + "/data/tokenizers/qwen3/tokenizer.json");
  REQUIRE(tokenizer.ok());
  const int32_t end = (*tokenizer)->MarkupId("<|im_end|>").value();
  size_t num_equal = 0, num_compared = 0;
  ForEachLine("label_ids_golden.jsonl", [&](dom::element line) {
    const bool masks_history = line["settings"]["mask_history"].error() == simdjson::SUCCESS;
    if (Text(line, "rule") != "llamafactory" || masks_history) return;
    INFO(Text(line, "id"));
    std::vector<int32_t> ids, labels;
    EncodeChat(Render(line, kQwenSystem), **tokenizer, &ids, &labels);
    std::vector<int32_t> their_ids = Ids(line, "input_ids");
    std::vector<int32_t> their_labels = Ids(line, "labels");
    if (Text(line, "case") == "special_in_content") {
      // Theirs makes tokens of <|im_end|> and <|endoftext|> in the users' texts; ours does not.
      CHECK(ids != their_ids);
      CHECK((*tokenizer)->Decode(ids) == (*tokenizer)->Decode(their_ids));
      CHECK(std::count(ids.begin(), ids.end(), end) == 3);  // one for each turn
      return;
    }
    for (size_t i = 1; i < their_labels.size(); ++i) {
      if (their_ids[i - 1] == end) their_labels[i] = kIgnoredLabel;
    }
    ++num_compared;
    CHECK(ids == their_ids);
    CHECK(labels == their_labels);
    num_equal += ids == their_ids && labels == their_labels;
  });
  Report("label ids", num_equal, num_compared);
  CHECK(num_compared == 9);
}

}  // namespace
}  // namespace odb
