"""What model calls cost, by genai-prices (imported late: a quarter of a second of CPU) or by the configuration."""

from agent_service.core.events import ModelUsage
from agent_service.models.settings import PriceSettings
from groundwork.service.beginning import loaded
from schemas.values import dataclass

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0


class Prices:
    def __init__(self, provider: str | None, own: PriceSettings | None) -> None:
        self._provider = provider
        self._own = own

    def cost_usd(self, model: str, counts: TokenCounts) -> float | None:
        return _by_own(self._own, counts) if self._own else self._by_list(model, counts)

    def usage(self, model: str, counts: TokenCounts) -> ModelUsage:
        return ModelUsage(
            input_tokens=counts.input,
            output_tokens=counts.output,
            cost_usd=self.cost_usd(model, counts),
            cache_read_tokens=counts.cache_read,
            cache_write_tokens=counts.cache_write,
        )

    def most_usd(self, model: str, *, prompt: int, reply: int, kept_1h: bool) -> float | None:
        counts = TokenCounts(input=prompt, output=reply, cache_write=prompt, cache_write_1h=prompt if kept_1h else 0)
        return self.cost_usd(model, counts)

    def _by_list(self, model: str, counts: TokenCounts) -> float | None:
        usage = loaded("genai_prices:Usage")(
            input_tokens=counts.input,
            output_tokens=counts.output,
            cache_read_tokens=counts.cache_read,
            cache_write_tokens=counts.cache_write,
            cache_write_1h_tokens=counts.cache_write_1h or None,
        )
        if self._provider is None:
            return None
        try:
            return float(loaded("genai_prices:calc_price")(usage, model, provider_id=self._provider).total_price)
        except (LookupError, ValueError):
            return None


def _by_own(price: PriceSettings, counts: TokenCounts) -> float:
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    plain = max(0, counts.input - counts.cache_read - counts.cache_write)
    cost = plain * price.input + counts.cache_read * read + counts.cache_write * write + counts.output * price.output
    return cost / MILLION
