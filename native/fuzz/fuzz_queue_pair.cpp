// One queue pair in the hands of a hostile peer and an erratic driver: arbitrary packets, posts, receives and
// timers in any order. Whatever the input:
// - nothing is placed outside the memory that the peer was allowed for this message, nor read for it outside
//   what it was allowed to read;
// - a READ's data comes in order and lands where it was asked for;
// - each posted message is over exactly once, in order, and counters add up;
// - a queue pair with a message pending can go on or has a timer, so that with a silent peer it ends.
#include <vector>

#include "input.hpp"
#include "roce/queue_pair.hpp"

namespace {

using namespace genie;
using namespace genie::roce;
using fuzz::Input;

constexpr std::uint64_t kMemoryStart = 0x7000'0000'0000;
constexpr std::uint32_t kMemoryBytes = 16384, kRkey = 0x1234;
constexpr std::size_t kPostsMax = 64;
constexpr std::uint32_t kPayloadMax = 65507;  // of a datagram
// Packets that can be sent without an answer, at most: the window, READs beyond it, and the data of READs
// that are owed.
constexpr std::uint32_t kPacketsMax = 32 + kPostsMax + 16 * (kMemoryBytes / 256);

struct Range {
  std::uint64_t start = 0;
  std::uint32_t size_bytes = 0;
  bool holds(std::uint64_t address, std::uint32_t bytes) const {
    return address >= start && address - start <= size_bytes && bytes <= size_bytes - (address - start);
  }
};

QueuePairConfig config_from(Input& in) {
  QueuePairConfig config;
  config.mtu_bytes = 256u << in.below(5);
  config.window_packets = 1 + in.below(32);
  config.ack_every_packets = 1 + in.below(8);
  config.ack_timeout = (1 + in.below(200)) * kPsPerUs;
  config.retry_limit = in.below(8);
  config.rnr_retry_limit = in.below(8);
  config.rnr_timer = static_cast<std::uint8_t>(in.u8());
  config.reads_max = 1 + in.below(16);
  if (in.flag()) {
    config.congestion.control = static_cast<congestion::Control>(in.below(9));
    config.congestion.notify_in_acks = in.flag();
  }
  config.congestion.line_rate_bps = 1'000'000'000;
  config.congestion.base_round_trip = 10 * kPsPerUs;
  return config;
}

class Host {
 public:
  explicit Host(Input& in)
      : in_(in), config_(config_from(in)), pair_(config_, 7, in.u32(), in.u32()), memory_(kMemoryBytes) {
    counted_ = in.flag();
    receive_bytes_ = in.u16();
  }

  void play() {
    while (!in_.empty()) {
      armed_in_step_ = 0;
      step();
      look();
    }
    silence();
  }

  // The sink.
  void ready(QueuePair& pair) { REQUIRE(pair.has_control() || pair.has_data()); }
  void arm_timer(QueuePair&, TimePs at) {
    REQUIRE(at >= now_ && at != kNever);
    REQUIRE(++armed_in_step_ <= 1);  // a driver's list of timers grows by one an event at most
    timers_.push_back(at);
  }
  void sent(QueuePair&, std::uint64_t handle, Status status, std::uint32_t) {
    if (posts_too_long_) {  // not taken, and all else goes on
      REQUIRE(handle + 1 == posted_.size() && status == Status::kTooLong);
      posted_.pop_back();
      return;
    }
    REQUIRE(handle == over_ && handle < posted_.size());
    const SendRequest& request = posted_[handle];
    // Good ones, then one that failed, then flushed ones.
    REQUIRE(status != Status::kTooLong && failed_ == (status == Status::kFlushed));
    failed_ = failed_ || status != Status::kOk;
    if (status == Status::kOk && request.verb == Verb::kRead) REQUIRE(fetched_bytes_ == request.size_bytes);
    fetched_bytes_ = 0;
    ++over_;
  }
  bool may_write(QueuePair&, std::uint32_t rkey, std::uint64_t address, std::uint32_t size_bytes) {
    REQUIRE(receiving_ != nullptr && is_first(receiving_->opcode) && is_write(receiving_->opcode));
    if (!allowed(rkey, address, size_bytes)) return false;
    granted_ = {address, size_bytes};
    next_address_ = address;
    return true;
  }
  bool may_read(QueuePair&, std::uint32_t rkey, std::uint64_t address, std::uint32_t size_bytes) {
    REQUIRE(receiving_ != nullptr && receiving_->opcode == Opcode::kReadRequest);
    if (!allowed(rkey, address, size_bytes)) return false;
    readable_.push_back({address, size_bytes});
    return true;
  }
  bool readable(QueuePair&) { return true; }
  void refused(QueuePair&, const Packet& packet, Refusal) { REQUIRE(receiving_ == &packet); }
  std::int64_t receives_left(QueuePair&) { return counted_ ? static_cast<std::int64_t>(receives_) : -1; }
  bool take_receive(QueuePair&) {
    if (receives_ == 0) return false;
    --receives_;
    return true;
  }
  bool place(QueuePair&, const Packet& packet, std::uint64_t address) {
    REQUIRE(receiving_ == &packet && pair_.counters().refused == 0);
    REQUIRE(packet.payload_bytes > 0 && packet.payload_bytes <= config_.mtu_bytes);
    REQUIRE(address == next_address_);  // of a SEND: the offset in its receive
    next_address_ += packet.payload_bytes;
    if (is_send(packet.opcode)) return next_address_ <= receive_bytes_;
    REQUIRE(granted_.holds(address, packet.payload_bytes));
    std::memset(memory_.data() + (address - kMemoryStart), 1, packet.payload_bytes);
    return true;
  }
  void fetched(QueuePair&, const Packet& packet, std::uint64_t address) {
    REQUIRE(receiving_ == &packet && is_read_response(packet.opcode) && over_ < posted_.size());
    const SendRequest& oldest = posted_[over_];
    REQUIRE(oldest.verb == Verb::kRead && packet.payload_bytes > 0);
    REQUIRE(address == oldest.local_address + fetched_bytes_);
    fetched_bytes_ += packet.payload_bytes;
    REQUIRE(fetched_bytes_ <= oldest.size_bytes);
  }
  void delivered(QueuePair&, const Delivery& delivery) {
    REQUIRE(receiving_ != nullptr && is_last(receiving_->opcode) && pair_.counters().refused == 0);
    REQUIRE(delivery.is_send == is_send(receiving_->opcode));
    REQUIRE(delivery.has_immediate == has_immediate(receiving_->opcode));
    REQUIRE(delivery.size_bytes == next_address_ - (delivery.is_send ? 0 : granted_.start));
    REQUIRE(delivery.is_send || delivery.size_bytes == granted_.size_bytes);
    REQUIRE(delivery.first <= now_);
  }

 private:
  static bool allowed(std::uint32_t rkey, std::uint64_t address, std::uint32_t size_bytes) {
    return rkey == kRkey && Range{kMemoryStart, kMemoryBytes}.holds(address, size_bytes);
  }

  void step() {
    switch (in_.below(9)) {
      case 0:
        return post();
      case 1:
      case 2:
      case 3:
        return receive();
      case 4:
        return take_control();
      case 5:
        return take_data();
      case 6:
        return fire();
      case 7:
        receives_ += in_.below(4);
        return pair_.receives_posted(*this);
      default:
        now_ += in_.u16() * kPsPerNs;
    }
  }

  std::uint32_t size_from() {
    switch (in_.below(4)) {
      case 0:
        return in_.u8();
      case 1: {  // about a whole number of packets
        const std::uint32_t packets = in_.below(40);
        return std::max(packets * config_.mtu_bytes + in_.below(3), 1u) - 1;
      }
      case 2:
        return in_.u16();
      default:
        return in_.u32();
    }
  }

  void post() {
    if (posted_.size() == kPostsMax) return;
    SendRequest request;
    request.verb = static_cast<Verb>(in_.below(5));
    request.handle = posted_.size();
    request.size_bytes = size_from();
    request.solicited = in_.flag();
    request.local_address = request.handle << 32;
    request.remote_address = in_.u64();
    posted_.push_back(request);
    const std::size_t count = posted_.size();
    const std::uint64_t packets = request.verb == Verb::kRead ? 1u << 22 : (1u << 23) - 1;
    const std::uint64_t most = std::min<std::uint64_t>(packets * config_.mtu_bytes, kMessageMaxBytes);
    posts_too_long_ = !failed_ && request.size_bytes > most;
    pair_.post(request, *this);
    REQUIRE(posted_.size() == count - (posts_too_long_ ? 1 : 0));
    posts_too_long_ = false;
  }

  std::uint32_t psn_from() {
    switch (in_.below(4)) {
      case 0:
        return in_.u32() & kPsnMask;
      case 1:
        return psn_add(pair_.unacked_psn(), in_.u8() + kPsnMask - 2);
      case 2:
        return psn_add(pair_.send_psn(), kPsnMask - in_.below(4) + 1);
      default:
        return pair_.expected_psn();
    }
  }

  std::uint64_t address_from() {
    return in_.flag() ? in_.u64() : kMemoryStart + kMemoryBytes / 2 + in_.u16() - 32768;
  }

  void receive() {
    Packet packet;
    const std::uint32_t raw = in_.u8();
    packet.opcode = raw == 255 ? Opcode::kCnp : static_cast<Opcode>(raw < 192 ? raw % 0x16 : in_.u8());
    packet.psn = psn_from();
    const std::uint32_t flags = in_.u8();
    packet.ack_request = (flags & 1) != 0;
    packet.solicited = (flags & 2) != 0;
    packet.congested = (flags & 4) != 0;
    if (has_aeth(packet.opcode))
      packet.syndrome = static_cast<std::uint8_t>(in_.u8()), packet.msn = in_.u16();
    if (is_send(packet.opcode) || is_write(packet.opcode) || is_read_response(packet.opcode)) {
      // Often what its place in a message asks for.
      const std::uint32_t shape = in_.below(4);
      packet.payload_bytes = shape == 0   ? in_.u16() % (kPayloadMax + 1)
                             : shape == 1 ? in_.u8()
                                          : config_.mtu_bytes - (shape == 2 ? 0 : in_.u8());
      packet.immediate = in_.u8();
    }
    if (has_reth(packet.opcode)) {
      packet.rkey = in_.below(8) == 0 ? in_.u32() : kRkey;
      packet.remote_address = address_from();
      packet.message_bytes = in_.flag() ? packet.payload_bytes : size_from();
    }
    handle(packet);
  }

  void handle(const Packet& packet) {
    const std::uint64_t next = next_address_;
    const Range granted = granted_;
    if (packet.psn == pair_.expected_psn() && is_first(packet.opcode)) {
      next_address_ = 0;
      granted_ = {};
    }
    if (packet.opcode == Opcode::kAcknowledge) ++acks_received_;
    if (packet.opcode == Opcode::kCnp) ++notifications_;
    if (is_request(packet.opcode)) ++requests_received_;
    receiving_ = &packet;
    pair_.receive(packet, now_, *this);
    receiving_ = nullptr;
    if (pair_.expected_psn() == packet.psn) {  // refused: the message is where it was
      next_address_ = next;
      granted_ = granted;
    }
  }

  void take_control() {
    Packet packet;
    const bool due = pair_.has_control();
    REQUIRE(pair_.take_control(packet, *this) == due);
    if (!due) return;
    ++controls_taken_;
    REQUIRE(packet.psn <= kPsnMask && packet.msn <= kPsnMask);
  }

  void take_data() {
    Packet packet;
    const bool due = pair_.has_data();
    REQUIRE(pair_.take_data(now_, packet, *this) == due);
    if (!due) return;
    REQUIRE(packet.psn <= kPsnMask && packet.payload_bytes <= config_.mtu_bytes);
    if (is_read_response(packet.opcode)) {
      ++responses_taken_;
      REQUIRE(packet.payload_bytes == 0 ||
              std::any_of(readable_.begin(), readable_.end(), [&](const Range& range) {
                return range.holds(packet.local_address, packet.payload_bytes);
              }));
      return;
    }
    ++data_taken_;
    REQUIRE(is_send(packet.opcode) || is_write(packet.opcode) || packet.opcode == Opcode::kReadRequest);
    const std::uint32_t wire = wire_bytes(packet.opcode, packet.payload_bytes, 38);
    const TimePs start = std::max(now_, pair_.data_from());
    pair_.departed(wire, start);
    // The lowest rate of all but Swift, whose window of less than a packet has no lower end in time.
    if (config_.congestion.control != congestion::Control::kSwift)
      REQUIRE(pair_.data_from() <= start + serialisation_ps(wire, config_.congestion.dcqcn.minimum_rate_bps));
  }

  // The next timer in its time, or a spurious call.
  void fire() {
    if (in_.below(4) != 0 && !timers_.empty()) return fire_next();
    now_ += in_.u16() * kPsPerNs;
    pair_.timer(now_, *this);
  }

  void fire_next() {
    const auto next = std::min_element(timers_.begin(), timers_.end());
    now_ = std::max(now_, *next);
    timers_.erase(next);
    pair_.timer(now_, *this);
  }

  void look() const {
    const QueuePairCounters& counters = pair_.counters();
    REQUIRE(counters.data_sent == data_taken_ && counters.retransmitted <= counters.data_sent);
    REQUIRE(counters.responses_sent == responses_taken_);
    REQUIRE(counters.acks_sent + counters.naks_sent + counters.rnr_naks_sent + counters.cnps_sent ==
            controls_taken_);
    REQUIRE(counters.acks_received == acks_received_ && counters.data_received == requests_received_);
    REQUIRE(counters.cnps_received + counters.forged_cnps == notifications_);
    REQUIRE(counters.cnps_sent <= counters.congestion_marks);
    REQUIRE(counters.naks_received + counters.rnr_naks_received <= counters.acks_received);
    REQUIRE(counters.duplicates + counters.out_of_sequence <= counters.data_received);
    REQUIRE(counters.refused <= std::min<std::uint64_t>(counters.data_received, 1));
    REQUIRE(counters.reads_dropped + counters.forged_requests <= counters.data_received);
    REQUIRE(pair_.pending() == posted_.size() - over_);
    const bool reads = std::any_of(posted_.begin() + static_cast<std::ptrdiff_t>(over_), posted_.end(),
                                   [](const SendRequest& request) { return request.verb == Verb::kRead; });
    const std::int32_t in_flight = psn_diff(pair_.send_psn(), pair_.unacked_psn());
    REQUIRE(failed_ || in_flight >= 0);
    REQUIRE(failed_ || reads || in_flight <= static_cast<std::int32_t>(config_.window_packets));
    REQUIRE((pair_.state() == RequesterState::kError) == failed_);
    REQUIRE(pair_.pending() == 0 || pair_.has_data() || !timers_.empty());
  }

  // The peer says nothing more: what is pending ends within the retries.
  void silence() {
    const std::size_t timers_max = timers_.size() + 2 * (std::size_t{config_.retry_limit} + 2);
    for (std::size_t fired = 0; pair_.pending() > 0; ++fired) {
      REQUIRE(fired <= timers_max);
      for (std::uint32_t sent = 0; pair_.has_data(); ++sent) {
        REQUIRE(sent <= kPacketsMax);
        armed_in_step_ = 0;
        take_data();
        look();
      }
      armed_in_step_ = 0;
      REQUIRE(pair_.pending() == 0 || !timers_.empty());
      fire_next();
      look();
    }
    REQUIRE(over_ == posted_.size());
  }

  Input& in_;
  QueuePairConfig config_;
  QueuePair pair_;
  std::vector<std::byte> memory_;
  TimePs now_ = 0;
  std::vector<TimePs> timers_;
  int armed_in_step_ = 0;
  std::vector<SendRequest> posted_;
  std::uint64_t over_ = 0;           // of those posted
  std::uint64_t fetched_bytes_ = 0;  // of the oldest READ
  bool failed_ = false, posts_too_long_ = false;
  bool counted_ = false;
  std::uint64_t receives_ = 0;
  std::uint32_t receive_bytes_ = 0;  // room of each
  std::uint64_t controls_taken_ = 0, data_taken_ = 0, responses_taken_ = 0;
  std::uint64_t requests_received_ = 0, acks_received_ = 0, notifications_ = 0;
  // The message being received.
  const Packet* receiving_ = nullptr;
  Range granted_;
  std::uint64_t next_address_ = 0;
  std::vector<Range> readable_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in({reinterpret_cast<const std::byte*>(data), size});
  Host host(in);
  host.play();
  return 0;
}
