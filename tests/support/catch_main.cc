// Catch2 2.13 main for Bazel: --test_filter works, and test.xml has one
// <testcase> per TEST_CASE instead of one per binary.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace {
std::string XmlEscape(const std::string& s) {
  std::string o;
  for (unsigned char c : s) {
    if (c == '&')
      o += "&amp;";
    else if (c == '<')
      o += "&lt;";
    else if (c == '>')
      o += "&gt;";
    else if (c == '"')
      o += "&quot;";
    else if (c < 0x20 && c != '\n' && c != '\t')
      o += '?';
    else
      o += static_cast<char>(c);
  }
  return o;
}

struct BazelXml : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  struct Case {
    std::string name, failure;
    double seconds = 0;
  };
  std::vector<Case> cases;
  std::string failure;
  Catch::Timer timer;

  void testCaseStarting(Catch::TestCaseInfo const&) override {
    failure.clear();
    timer.start();
  }
  bool assertionEnded(Catch::AssertionStats const& a) override {
    if (!a.assertionResult.isOk()) {
      std::ostringstream o;
      o << a.assertionResult.getSourceInfo() << ": " << a.assertionResult.getExpressionInMacro()
        << "\n  " << a.assertionResult.getExpandedExpression() << "\n  "
        << std::string(a.assertionResult.getMessage()) << "\n";
      failure += o.str();
    }
    return true;
  }
  void testCaseEnded(Catch::TestCaseStats const& t) override {
    if (failure.empty() && !t.totals.testCases.allOk()) failure = "failed";
    cases.push_back({t.testInfo.name, failure, timer.getElapsedSeconds()});
  }
  void testRunEnded(Catch::TestRunStats const& r) override {
    const char* path = std::getenv("XML_OUTPUT_FILE");
    if (!path) return;
    std::ofstream f(path);
    std::size_t bad = 0;
    for (auto& c : cases) bad += !c.failure.empty();
    const std::string suite = XmlEscape(r.runInfo.name);
    f << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites><testsuite name=\"" << suite
      << "\" tests=\"" << cases.size() << "\" failures=\"" << bad << "\" errors=\"0\">\n";
    for (auto& c : cases) {
      f << "<testcase classname=\"" << suite << "\" name=\"" << XmlEscape(c.name) << "\" time=\""
        << c.seconds << "\">";
      if (!c.failure.empty()) f << "<failure>" << XmlEscape(c.failure) << "</failure>";
      f << "</testcase>\n";
    }
    f << "</testsuite></testsuites>\n";
  }
};
CATCH_REGISTER_LISTENER(BazelXml)
}  // namespace

int main(int argc, char** argv) {
  Catch::Session session;
  std::vector<const char*> args(argv, argv + argc);
  if (const char* only = std::getenv("TESTBRIDGE_TEST_ONLY")) args.push_back(only);
  int rc = session.applyCommandLine(static_cast<int>(args.size()), args.data());
  if (rc != 0) return rc;
  return session.run();
}
