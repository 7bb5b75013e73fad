// One end of a connection: parts of messages, clear-to-sends with and without a FIFO at the peer.
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "roce/connection.hpp"

namespace {

using namespace genie;
using namespace genie::roce;
using Part = Connection::Part;

constexpr std::uint32_t kTag = 7, kClearToSend = kCreditTag | 7;

std::vector<Part> sent_parts(Connection& connection, std::uint64_t handle, std::uint32_t tag,
                             std::uint64_t size_bytes) {
  std::vector<Part> parts;
  connection.send(handle, tag, size_bytes, [&](const Part& part) { parts.push_back(part); });
  return parts;
}

std::vector<Connection::Arrival> deliver(Connection& connection, std::uint32_t queue_pair,
                                         const SendRequest& request) {
  std::vector<Connection::Arrival> arrivals;
  connection.delivered(queue_pair,
                       {.size_bytes = request.size_bytes,
                        .immediate = request.immediate,
                        .has_immediate = request.verb == Verb::kWriteImm,
                        .remote_address = request.remote_address},
                       5, [&](const Connection::Arrival& arrival) { arrivals.push_back(arrival); });
  return arrivals;
}

void a_message_goes_in_parts_and_comes_back_whole() {
  Connection sender({.queue_pairs = 2, .split = true}), receiver({.queue_pairs = 2, .split = true});
  const std::vector<Part> parts = sent_parts(sender, 42, kTag, 1000);
  CHECK_EQUAL(parts.size(), std::size_t{2});
  CHECK_EQUAL(parts[0].size_bytes + parts[1].size_bytes, std::uint64_t{1000});
  CHECK_EQUAL(parts[1].offset, parts[0].size_bytes);
  CHECK(parts[0].request().verb == Verb::kWriteImm);
  CHECK(deliver(receiver, 0, parts[0].request()).empty());
  const auto arrivals = deliver(receiver, 1, parts[1].request());
  CHECK_EQUAL(arrivals.size(), std::size_t{1});
  CHECK_EQUAL(arrivals.at(0).size_bytes, std::uint64_t{1000});
  CHECK_EQUAL(arrivals.at(0).tag, kTag);
  CHECK(!sender.sent(parts[0].handle, 1).whole);
  const Connection::Sent over = sender.sent(parts[1].handle, 2);
  CHECK(over.whole);
  CHECK_EQUAL(over.handle, std::uint64_t{42});
  CHECK_EQUAL(over.retransmits, 3u);
}

void a_clear_to_send_overtakes_messages_where_the_peer_has_a_fifo() {
  for (const bool split : {false, true}) {
    Connection sender({.queue_pairs = 2, .split = split}), receiver({.queue_pairs = 2, .split = split});
    const std::vector<Part> parts = sent_parts(sender, kCreditHandle, kClearToSend, 64);
    CHECK_EQUAL(parts.size(), std::size_t{1});
    CHECK(parts[0].is_credit);
    CHECK_EQUAL(parts[0].queue_pair, 0u);
    CHECK(parts[0].request().verb == Verb::kWrite);
    const auto arrivals = deliver(receiver, 0, parts[0].request());
    CHECK_EQUAL(arrivals.size(), std::size_t{1});
    CHECK_EQUAL(arrivals.at(0).tag, kClearToSend);
    CHECK(!sender.sent(kCreditHandle, 0).whole);
    // It has taken no turn: a message still begins with the first queue pair.
    CHECK_EQUAL(sent_parts(sender, 1, kTag, 8).front().queue_pair, 0u);
  }
}

void a_clear_to_send_is_a_message_to_a_peer_without_a_fifo() {
  Connection sender({.queue_pairs = 2}, false);
  const std::vector<Part> parts = sent_parts(sender, kCreditHandle, kClearToSend, 64);
  CHECK_EQUAL(parts.size(), std::size_t{1});
  CHECK(!parts[0].is_credit);
  CHECK(parts[0].request().verb == Verb::kWriteImm);
  CHECK_EQUAL(parts[0].request().immediate, kClearToSend);
  CHECK(sender.sent(parts[0].handle, 0).whole);
  CHECK_EQUAL(sent_parts(sender, 1, kTag, 8).front().queue_pair, 1u);  // and it has taken a turn
}

}  // namespace

int main() {
  a_message_goes_in_parts_and_comes_back_whole();
  a_clear_to_send_overtakes_messages_where_the_peer_has_a_fifo();
  a_clear_to_send_is_a_message_to_a_peer_without_a_fifo();
  return genie::test::check_result("test_connection");
}
