// A soft NIC in the hands of a program that posts and polls, as verbs would have it. The bench and the tests
// against other stacks drive it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/time.hpp"
#include "live/soft_nic.hpp"

namespace genie::live {

// A work completion.
struct Event {
  bool is_receive = false;  // of the peer's message, otherwise of a request of ours
  std::uint32_t queue_pair = 0;
  std::uint64_t handle = 0;
  roce::Status status = roce::Status::kOk;
  std::uint32_t retransmits = 0;  // packets sent again
  roce::Delivery delivery;        // of a receive
  TimePs time = 0;
};

// Messages that have arrived, including WRITEs without an immediate, which complete nothing.
struct Arrivals {
  std::uint64_t messages = 0, bytes = 0;
  TimePs first = 0, last = 0;  // of the first packet and of the last message
};

class Endpoint final : private NicOwner {
 public:
  explicit Endpoint(const NicConfig& config) : nic_(config, *this) {}

  SoftNic& nic() { return nic_; }
  const SoftNic& nic() const { return nic_; }

  // Goes on until something completes or the time has come; what has completed since the last call.
  std::vector<Event> poll(TimePs deadline);
  // Answers peers until then, or until so many messages have arrived in all.
  Arrivals serve(TimePs deadline, std::uint64_t messages);
  void forget_arrivals() { arrivals_ = {}; }
  const std::string& error() const { return error_; }

  struct Stream {
    roce::SendRequest request;               // one of the messages, all of which are alike
    std::vector<std::uint32_t> queue_pairs;  // in turn
    std::uint32_t depth = 1;                 // messages under way on each
    std::uint64_t messages = 0;              // in all
  };
  // Sends as fast as it goes; the time from the first post to the last completion, -1 when it has not ended
  // or something failed.
  TimePs stream(const Stream& stream, TimePs deadline);
  // Messages to and fro, each the answer to the one before; round-trip times of the end that begins. It ends
  // early when something fails or the time has come.
  std::vector<TimePs> pingpong(std::uint32_t queue_pair, const roce::SendRequest& request,
                               std::uint64_t rounds, bool begins, bool spin, TimePs deadline);

 private:
  void sent(std::uint32_t queue_pair, std::uint64_t handle, roce::Status status, std::uint32_t retransmits,
            TimePs now) override;
  void delivered(std::uint32_t queue_pair, const roce::Delivery& delivery, const Receive* receive,
                 TimePs now) override;
  void turn(TimePs until, bool spin);

  SoftNic nic_;
  std::vector<Event> events_;
  bool keep_events_ = true;
  bool happened_ = false;                // in this turn, something completed or arrived
  std::uint64_t over_ = 0;               // requests that have ended
  std::vector<std::uint32_t> finished_;  // by queue pair, while streaming: requests that have ended since
  Arrivals arrivals_;
  std::string error_;
};

}  // namespace genie::live
