#include "server/preprocess/chatml.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "server/preprocess/byte_tokenizer.h"
#include "server/preprocess/sample.h"

namespace odb {
namespace {

// The text a conversation becomes, what is in the loss in brackets.
std::string Rendered(const Conversation& conversation, const std::string& default_system = "") {
  std::string out;
  bool in_loss = false;
  for (const ChatSegment& segment : RenderChatml(conversation, default_system)) {
    if (segment.in_loss != in_loss) out += in_loss ? "]" : "[";
    in_loss = segment.in_loss;
    out += segment.text;
  }
  return in_loss ? out + "]" : out;
}

Turn MakeTurn(Role role, const std::string& content) {
  Turn turn;
  turn.role = role;
  turn.content = content;
  return turn;
}

TEST_CASE("RenderChatml: of the assistant's turns content and end count in the loss", "[chatml]") {
  Conversation conversation;
  conversation.turns = {MakeTurn(Role::kSystem, "be kind"), MakeTurn(Role::kUser, "hi"),
                        MakeTurn(Role::kAssistant, "hello"), MakeTurn(Role::kUser, "?"),
                        MakeTurn(Role::kAssistant, "")};

  CHECK(Rendered(conversation) ==
        "<|im_start|>system\nbe kind<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n[hello<|im_end|>]\n"
        "<|im_start|>user\n?<|im_end|>\n"
        "<|im_start|>assistant\n[<|im_end|>]\n");
  conversation.turns[2].in_loss = false;
  CHECK(Rendered(conversation).find("assistant\nhello<|im_end|>\n<") != std::string::npos);
}

TEST_CASE("RenderChatml: the default system stands in only where there is none", "[chatml]") {
  Conversation conversation;
  conversation.turns = {MakeTurn(Role::kUser, "hi")};
  CHECK(Rendered(conversation, "D") ==
        "<|im_start|>system\nD<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n");

  conversation.turns.insert(conversation.turns.begin(), MakeTurn(Role::kSystem, "own"));
  CHECK(Rendered(conversation, "D").find("<|im_start|>system\nown<|im_end|>\n") == 0);
}

TEST_CASE("RenderChatml: tools, calls, reasoning and results are written as Qwen's are",
          "[chatml]") {
  Conversation conversation;
  conversation.tools = {"{\"t\": 1}", "{\"t\": 2}"};
  Turn calls = MakeTurn(Role::kAssistant, "\nwait");
  calls.reasoning = "\nhm\n";
  calls.tool_calls = {{"f", "{\"a\": 1}"}, {"g", "{}"}};
  conversation.turns = {MakeTurn(Role::kUser, "q"), calls, MakeTurn(Role::kTool, "r1"),
                        MakeTurn(Role::kTool, "r2"), MakeTurn(Role::kAssistant, "done")};

  CHECK(Rendered(conversation) ==
        "<|im_start|>system\n# Tools\n\nYou may call one or more functions to assist with the user "
        "query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n"
        "<tools>\n{\"t\": 1}\n{\"t\": 2}\n</tools>\n\nFor each function call, return a json object "
        "with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
        "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n"
        "<|im_start|>user\nq<|im_end|>\n"
        "<|im_start|>assistant\n[<think>\nhm\n</think>\n\nwait\n"
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call><|im_end|>]\n"
        "<|im_start|>user\n<tool_response>\nr1\n</tool_response>\n"
        "<tool_response>\nr2\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n[done<|im_end|>]\n");
}

TEST_CASE("EncodeChat: labels are the ids where they count and -100 elsewhere", "[chatml]") {
  Conversation conversation;
  conversation.turns = {MakeTurn(Role::kUser, "<|im_end|>"), MakeTurn(Role::kAssistant, "ok")};
  const auto tokenizer = MakeByteTokenizer();
  std::vector<int32_t> ids, labels;
  EncodeChat(RenderChatml(conversation, ""), *tokenizer, &ids, &labels);

  // <|im_start|> "user\n" and ten characters of the user's, no token; <|im_end|> "\n"
  // <|im_start|> "assistant\n"; then the answer: two bytes and <|im_end|>; "\n".
  const size_t answer = 1 + 5 + 10 + 2 + 1 + 10;
  REQUIRE(ids.size() == answer + 3 + 1);
  REQUIRE(labels.size() == ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    INFO(i);
    const bool counts = i >= answer && i < answer + 3;
    CHECK(labels[i] == (counts ? ids[i] : kIgnoredLabel));
  }
  CHECK(ids[answer] == 'o');
  CHECK(ids[answer + 2] == 258);
  CHECK(std::count(ids.begin(), ids.end(), 258) == 2);  // none from the user's text
}

// Knows no markers, and shows in which pieces it is asked.
class PieceTokenizer final : public Tokenizer {
 public:
  void Encode(absl::string_view text, MarkupTokens markup,
              std::vector<int32_t>* out) const override {
    pieces.push_back(std::string(text) + "/" + std::to_string(static_cast<int>(markup)));
    out->push_back(static_cast<int32_t>(pieces.size()));
  }
  std::optional<int32_t> MarkupId(absl::string_view) const override { return std::nullopt; }
  std::string TokenBytes(int32_t) const override { return ""; }
  int32_t pad_token_id() const override { return 0; }
  int32_t vocab_size() const override { return 1; }
  uint64_t digest() const override { return 0; }

  mutable std::vector<std::string> pieces;
};

TEST_CASE("EncodeChat: markers without a token are text, cut where the loss begins and ends",
          "[chatml]") {
  Conversation conversation;
  conversation.turns = {MakeTurn(Role::kUser, "q"), MakeTurn(Role::kAssistant, "a")};
  const PieceTokenizer tokenizer;
  std::vector<int32_t> ids, labels;
  EncodeChat(RenderChatml(conversation, ""), tokenizer, &ids, &labels);

  CHECK(tokenizer.pieces ==
        std::vector<std::string>{"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n/0",
                                 "a<|im_end|>/1", "\n/0"});
  CHECK(labels == std::vector<int32_t>{kIgnoredLabel, 2, kIgnoredLabel});
}

}  // namespace
}  // namespace odb
