#pragma once

namespace odb {

// Of the release; the same in odbd, odb-aligner, odbctl and the client.
constexpr char kOdbVersion[] = "0.1.0";

}  // namespace odb
