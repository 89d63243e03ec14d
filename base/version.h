#pragma once

namespace odb {

// Of the release: of all programs and of the client, in Python as well (odbd.__version__).
constexpr char kOdbVersion[] = "0.1.0";

}  // namespace odb
