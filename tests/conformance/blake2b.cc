#include "tests/conformance/blake2b.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status_macros.h"

namespace odb {
namespace {

constexpr size_t kBlockBytes = 128;
constexpr int kNumRounds = 12;

constexpr std::array<uint64_t, 8> kInitial = {
    0x6a09e667f3bcc908ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL, 0xa54ff53a5f1d36f1ULL,
    0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL, 0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL};

// RFC 7693, 2.7; rounds 10 and 11 repeat rows 0 and 1.
constexpr uint8_t kSigma[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

// Which of the sixteen words each of a round's eight mixings works on.
constexpr uint8_t kMixed[8][4] = {{0, 4, 8, 12},  {1, 5, 9, 13},  {2, 6, 10, 14}, {3, 7, 11, 15},
                                  {0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13},  {3, 4, 9, 14}};

uint64_t Rotr(uint64_t x, int bits) { return (x >> bits) | (x << (64 - bits)); }

void Compress(absl::string_view block, uint64_t bytes_so_far, bool is_last,
              std::array<uint64_t, 8>* state) {
  std::array<uint64_t, 16> message{};
  for (size_t i = 0; i < block.size(); ++i) {
    message[i / 8] |= static_cast<uint64_t>(static_cast<unsigned char>(block[i])) << (8 * (i % 8));
  }
  std::array<uint64_t, 16> v{};
  for (size_t i = 0; i < 8; ++i) {
    v[i] = (*state)[i];
    v[i + 8] = kInitial[i];
  }
  v[12] ^= bytes_so_far;
  if (is_last) v[14] = ~v[14];
  for (int round = 0; round < kNumRounds; ++round) {
    const uint8_t* sigma = kSigma[round % 10];
    for (size_t i = 0; i < 8; ++i) {
      uint64_t& a = v[kMixed[i][0]];
      uint64_t& b = v[kMixed[i][1]];
      uint64_t& c = v[kMixed[i][2]];
      uint64_t& d = v[kMixed[i][3]];
      a += b + message[sigma[2 * i]];
      d = Rotr(d ^ a, 32);
      c += d;
      b = Rotr(b ^ c, 24);
      a += b + message[sigma[2 * i + 1]];
      d = Rotr(d ^ a, 16);
      c += d;
      b = Rotr(b ^ c, 63);
    }
  }
  for (size_t i = 0; i < 8; ++i) (*state)[i] ^= v[i] ^ v[i + 8];
}

}  // namespace

std::string Blake2b(absl::string_view message, int num_bytes) {
  INVARIANT(num_bytes >= 1 && num_bytes <= 64, "a BLAKE2b digest has 1 to 64 bytes");
  std::array<uint64_t, 8> state = kInitial;
  state[0] ^= 0x01010000U ^ static_cast<uint64_t>(num_bytes);
  uint64_t bytes_so_far = 0;
  while (message.size() > kBlockBytes) {
    bytes_so_far += kBlockBytes;
    Compress(message.substr(0, kBlockBytes), bytes_so_far, /*is_last=*/false, &state);
    message.remove_prefix(kBlockBytes);
  }
  Compress(message, bytes_so_far + message.size(), /*is_last=*/true, &state);

  std::string digest;
  for (size_t i = 0; i < static_cast<size_t>(num_bytes); ++i) {
    digest.push_back(static_cast<char>(state[i / 8] >> (8 * (i % 8))));
  }
  return digest;
}

}  // namespace odb
