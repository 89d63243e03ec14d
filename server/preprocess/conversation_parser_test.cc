#include "server/preprocess/conversation_parser.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace odb {
namespace {

// The conversation as text, or the reason's name and the detail.
//   "S:..." system, "U:..." user, "A(thought)[name {args}]:..." assistant, "T:..." tool
std::string Parse(const std::string& json, ConversationFormat format = ConversationFormat::kAuto) {
  simdjson::dom::parser parser, nested;
  simdjson::dom::object record;
  REQUIRE(parser.parse(json).get(record) == simdjson::SUCCESS);
  Conversation conversation;
  if (const auto rejection = ParseConversation(record, format, &nested, &conversation)) {
    return absl::StrCat(QuarantineReasonName(rejection->reason), ": ", rejection->detail);
  }
  std::string out;
  for (const Turn& turn : conversation.turns) {
    absl::StrAppend(&out, out.empty() ? "" : "|",
                    absl::string_view("SUAT").substr(static_cast<size_t>(turn.role), 1));
    if (!turn.reasoning.empty()) absl::StrAppend(&out, "(", turn.reasoning, ")");
    for (const ToolCall& call : turn.tool_calls) {
      absl::StrAppend(&out, "[", call.name, " ", call.arguments, "]");
    }
    absl::StrAppend(&out, turn.in_loss ? ":" : "-:", turn.content);
  }
  for (const std::string& tool : conversation.tools) absl::StrAppend(&out, "|tool ", tool);
  return out;
}

TEST_CASE("ParseConversation: one dialogue in three formats is one conversation (S04)",
          "[conversation]") {
  const std::string expected = "S:be kind|U:hi\nthere|A:hello|U:1+1?|A:2";

  CHECK(Parse(R"({"messages": [
      {"role": "system", "content": "be kind"}, {"content": "hi\nthere", "role": "user"},
      {"role": "assistant", "content": "hello"}, {"role": "user", "content": "1+1?"},
      {"role": "assistant", "content": "2"}], "id": 7})") == expected);
  CHECK(Parse(R"({"system": "be kind", "conversations": [
      {"from": "human", "value": "hi\nthere"}, {"from": "gpt", "value": "hello"},
      {"from": "human", "value": "1+1?"}, {"value": "2", "from": "gpt"}]})") == expected);
  CHECK(Parse(R"({"history": [["hi\nthere", "hello"]], "output": "2", "input": "",
      "instruction": "1+1?", "system": "be kind"})") == expected);
}

TEST_CASE("ParseConversation: one tool dialogue in two formats is one conversation (S04)",
          "[conversation]") {
  const std::string expected =
      "U:sum?|A[add {\"a\": 1, \"b\": 2.0}][neg {}]:wait|T:3|A:three"
      "|tool {\"type\": \"function\", \"function\": {\"name\": \"add\"}}";

  // Arguments as a string, as an object, empty and absent; the turn's text beside them.
  CHECK(Parse(R"({"tools": [{"type": "function", "function": {"name": "add"}}], "messages": [
      {"role": "user", "content": "sum?"},
      {"role": "assistant", "content": "wait", "tool_calls": [
        {"id": "1", "type": "function",
         "function": {"name": "add", "arguments": "{\"a\":1,\"b\":2.0}"}},
        {"id": "2", "type": "function", "function": {"name": "neg", "arguments": ""}}]},
      {"role": "tool", "tool_call_id": "1", "content": "3"},
      {"role": "assistant", "content": "three", "tool_calls": null}]})") == expected);
  CHECK(Parse(R"({"tools": "[{\"name\": \"add\"}]", "conversations": [
      {"from": "human", "value": "sum?"}, {"from": "gpt", "value": "wait"},
      {"from": "function_call", "value": "{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2.0}}"},
      {"from": "function_call", "value": "[{\"name\": \"neg\"}]"},
      {"from": "observation", "value": "3"}, {"from": "gpt", "value": "three"}]})") == expected);
}

TEST_CASE("ParseConversation: content may be parts, or null beside tool calls (S04)",
          "[conversation]") {
  CHECK(Parse(R"({"messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "value": "b"}]},
      {"role": "assistant", "content": null,
       "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
      {"role": "tool", "content": [{"type": "text", "text": "x"}]},
      {"role": "assistant", "content": [{"type": "reasoning", "value": "hm"},
         {"type": "text", "value": "c"},
         {"type": "tool_call", "value": "{\"name\": \"g\", \"arguments\": {}}"}]}]})") ==
        "U:ab|A[f {}]:|T:x|A(hm)[g {}]:c");
  CHECK(Parse(R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "reasoning_content": "hm", "content": "a"}]})") == "U:q|A(hm):a");
}

TEST_CASE("ParseConversation: unusual orders of turns are served as they are (S04)",
          "[conversation]") {
  const auto messages = [](const std::string& roles) {
    std::string turns;
    for (const char role : roles) {
      absl::StrAppend(&turns, turns.empty() ? "" : ", ", R"({"role": ")",
                      role == 'S' ? "system" : (role == 'U' ? "user" : "assistant"),
                      R"(", "content": "x"})");
    }
    return Parse(absl::StrCat(R"({"messages": [)", turns, "]}"));
  };

  CHECK(messages("UUA") == "U:x|U:x|A:x");  // two users in a row
  CHECK(messages("AUA") == "A:x|U:x|A:x");  // assistant first
  CHECK(messages("USA") == "U:x|S:x|A:x");  // system in the middle
  CHECK(messages("UAU") == "U:x|A:x|U:x");  // ends with a user
  CHECK(messages("A") == "A:x");
}

TEST_CASE("ParseConversation: each shape that is refused has its reason (S04)", "[conversation]") {
  CHECK(Parse(R"({"messages": []})") == "empty_conversation: messages is empty");
  CHECK(Parse(R"({"conversations": []})") == "empty_conversation: conversations is empty");
  CHECK(Parse(R"({"messages": [{"role": "user", "content": "x"}]})") ==
        "no_assistant: none of the 1 turns is the assistant's");
  CHECK(Parse(R"({"instruction": "x"})") == "no_assistant: there is no output");
  CHECK(Parse(R"({"instruction": "x", "output": null})") == "no_assistant: there is no output");
  CHECK(Parse(R"({"messages": [{"role": "narrator", "content": "x"}]})")
            .find("unknown_role: turn 1 has role \"narrator\"") == 0);
  CHECK(Parse(R"({"messages": [{"content": "x"}]})") == "unknown_role: turn 1 has no role");
  CHECK(Parse(R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant"}]})") ==
        "bad_content: turn 2 has no content and calls no tool");
  CHECK(Parse(R"({"messages": [{"role": "user", "content": null}]})") ==
        "bad_content: turn 1 has no content");
  CHECK(Parse(R"({"messages": [{"role": "user", "content": 7}]})") ==
        "bad_content: turn 1 has content that is neither a string nor parts");
  CHECK(Parse(R"({"messages": [{"role": "user", "content": [{"text": "x"}]}]})") ==
        "bad_content: turn 1 has a content part without a type");
  CHECK(Parse(R"({"messages": [{"role": "user", "content": [{"type": "smell"}]}]})") ==
        "bad_content: turn 1 has a content part of type \"smell\"");
  CHECK(Parse(R"({"messages": "x"})") == "bad_content: messages is no array");
  CHECK(Parse(R"({"messages": ["x"]})") == "bad_content: turn 1 is no object");
  CHECK(Parse(R"({"instruction": "x", "output": ["a", "b"]})") ==
        "bad_content: output is no string");
  CHECK(Parse(R"({"instruction": "x", "output": "y", "history": [["a"]]})") ==
        "bad_content: history is no array of [prompt, answer]");
  CHECK(Parse(R"({"text": "x", "id": 1})") == "unknown_format: the keys are \"text\", \"id\"");
  CHECK(Parse(R"({})") == "unknown_format: the keys are ");
  CHECK(Parse(R"({"input_ids": [1, 2]})") ==
        "unknown_format: it was tokenized before; set format to tokenized");
  CHECK(Parse(R"({"conversations": [], "chosen": {}, "rejected": {}})").find("unknown_format: ") ==
        0);
}

TEST_CASE("ParseConversation: tools that are no tools are refused", "[conversation]") {
  const auto calls = [](const std::string& value) {
    return Parse(absl::StrCat(
        R"({"messages": [{"role": "assistant", "content": null, "tool_calls": )", value, "}]}"));
  };

  CHECK(calls(R"([{"function": {"arguments": "{}"}}])") ==
        "bad_tools: turn 1 a tool call has no name");
  CHECK(calls(R"([{"function": {"name": "f", "arguments": "{\"a\""}}])")
            .find("bad_tools: turn 1 arguments is a string that is not JSON") == 0);
  CHECK(calls(R"([{"function": {"name": "f", "arguments": [1]}}])") ==
        "bad_tools: turn 1 the arguments of \"f\" are no JSON object");
  CHECK(calls("[]") == "bad_content: turn 1 has no content and calls no tool");
  CHECK(Parse(R"({"messages": [{"role": "user", "content": "x",
      "tool_calls": [{"function": {"name": "f"}}]}]})")
            .find("bad_tools: turn 1 calls tools") == 0);
  CHECK(Parse(R"({"conversations": [{"from": "function_call", "value": "not json"}]})")
            .find("bad_tools: turn 1 a tool call is a string that is not JSON") == 0);
  CHECK(Parse(R"({"conversations": [{"from": "function_call", "value": ""}]})") ==
        "bad_tools: turn 1 holds no call");
  const std::string turns = R"("messages": [{"role": "assistant", "content": "x"}])";
  CHECK(Parse("{\"tools\": 7, " + turns + "}") == "bad_tools: tools is no array");
  CHECK(Parse("{\"tools\": [{}], " + turns + "}") ==
        "bad_tools: a tool has neither function nor name");
  CHECK(Parse("{\"tools\": \"\", " + turns + "}") == "A:x");
  CHECK(Parse("{\"tools\": \"[]\", " + turns + "}") == "A:x");
}

TEST_CASE("ParseConversation: pictures, video and audio are refused by name", "[conversation]") {
  const std::string turns = R"("messages": [{"role": "assistant", "content": "x"}])";

  CHECK(Parse("{\"image\": \"a.jpg\", " + turns + "}") ==
        "unsupported_media: the record has image");
  CHECK(Parse("{\"videos\": [\"a.mp4\"], " + turns + "}") ==
        "unsupported_media: the record has videos");
  CHECK(Parse("{\"images\": [], \"image\": null, \"audio\": \"\", " + turns + "}") == "A:x");
  CHECK(Parse(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})") ==
        "unsupported_media: turn 1 has a content part of type \"image_url\"");
}

TEST_CASE("ParseConversation: a weight of 0 keeps a turn out of the loss", "[conversation]") {
  const auto weighted = [](const std::string& member) {
    return Parse(
        absl::StrCat(R"({"messages": [{"role": "assistant", "content": "x", )", member, "}]}"));
  };

  CHECK(weighted("\"weight\": 0") == "A-:x");
  CHECK(weighted("\"loss_weight\": 1.0") == "A:x");
  CHECK(weighted("\"weight\": 0.5") == "bad_content: turn 1 has a weight other than 0 and 1");
}

TEST_CASE("ParseConversation: question and answer, prompt and response are Alpaca too",
          "[conversation]") {
  CHECK(Parse(R"({"question": "q", "answer": "a"})") == "U:q|A:a");
  CHECK(Parse(R"({"prompt": "q", "completion": "a"})") == "U:q|A:a");
  CHECK(Parse(R"({"query": "q", "response": "a"})") == "U:q|A:a");
  CHECK(Parse(R"({"instruction": "q", "input": "i", "output": ""})") == "U:q\ni|A:");
  CHECK(Parse(R"({"instruction": "", "input": "i", "output": "a"})") == "U:i|A:a");
  CHECK(Parse(R"({"prompt": "q"})") == "unknown_format: the keys are \"prompt\"");
}

TEST_CASE("ParseConversation: a named format reads nothing else", "[conversation]") {
  const std::string both =
      R"({"messages": [{"role": "assistant", "content": "m"}], "instruction": "q", "output": "a"})";

  CHECK(Parse(both) == "A:m");
  CHECK(Parse(both, ConversationFormat::kMessages) == "A:m");
  CHECK(Parse(both, ConversationFormat::kAlpaca) == "U:q|A:a");
  CHECK(Parse(both, ConversationFormat::kShareGpt).find("unknown_format: ") == 0);
}

}  // namespace
}  // namespace odb
