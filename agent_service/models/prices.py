"""What model calls cost, by genai-prices (imported late: a quarter of a second of CPU) or by the configuration."""

from agent_service.core.events import ModelUsage
from agent_service.models.settings import PriceSettings
from groundwork.service.program import loaded

MILLION = 1_000_000


class Prices:
    """`kept_1h`: tokens of those written to the cache that it keeps for an hour, not for minutes."""

    def __init__(self, provider: str | None, own: PriceSettings | None) -> None:
        self._provider = provider
        self._own = own

    def cost_usd(self, model: str, used: ModelUsage, kept_1h: int = 0) -> float | None:
        return _by_own(self._own, used) if self._own else self._by_list(model, used, kept_1h)

    def most_usd(self, model: str, *, prompt: int, reply: int, kept_1h: bool) -> float | None:
        most = ModelUsage(input_tokens=prompt, output_tokens=reply, cache_write_tokens=prompt)
        return self.cost_usd(model, most, prompt if kept_1h else 0)

    def _by_list(self, model: str, used: ModelUsage, kept_1h: int) -> float | None:
        usage = loaded("genai_prices:Usage")(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cache_read_tokens=used.cache_read_tokens,
            cache_write_tokens=used.cache_write_tokens,
            cache_write_1h_tokens=kept_1h or None,
        )
        if self._provider is None:
            return None
        try:
            return float(loaded("genai_prices:calc_price")(usage, model, provider_id=self._provider).total_price)
        except (LookupError, ValueError):
            return None


def _by_own(price: PriceSettings, used: ModelUsage) -> float:
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    plain = max(0, used.input_tokens - used.cache_read_tokens - used.cache_write_tokens)
    cached = used.cache_read_tokens * read + used.cache_write_tokens * write
    return (plain * price.input + cached + used.output_tokens * price.output) / MILLION
